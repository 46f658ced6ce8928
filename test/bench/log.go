package main

import (
	"fmt"
	"time"

	"tensorturn/broker"
	"tensorturn/broker/hub"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// logs measures synced appends as the hub makes them (events encoded, linked, one atomic batch, one sync), and how fast
// a hub that starts replays its log: read, verify the chain, decode, fold.
func (b *bench) logs(d *bed) {
	limit, events := 1500*time.Millisecond, 100_000
	if b.quick {
		limit, events = 100*time.Millisecond, 2000
	}
	single := 0.0
	for _, n := range []int{1, 10, 100, 1000} {
		perSecond := b.appends(d, n, limit)
		if n == 1 {
			single = perSecond
		}
		b.report.add(row{Section: "log", What: fmt.Sprintf("synced appends, batches of %d", n), Value: perSecond, Unit: "events/s",
			Ratio: perSecond / single, Of: "batches of 1"})
	}
	l := openLog(d)
	c := broker.NewCommitter(l, registry())
	d.Must(c.Open(b.ctx, func(event.Envelope) error { return nil }))
	fillLog(d, b, c, events)
	core := hub.New(hub.Config{Timing: domain.TimingOf(domain.DefaultLease), Process: "bench"}, l, registry())
	began := time.Now()
	d.Must(core.Open(b.ctx, began))
	took := time.Since(began).Seconds()
	d.Must(core.ReadOnly())
	seq, _ := c.Head()
	b.report.add(row{Section: "log", What: fmt.Sprintf("replay of %d events at a hub's start", seq), Value: float64(seq) / took, Unit: "events/s"})
}

// appends commits groups of n facts for a while.
func (b *bench) appends(d *bed, n int, limit time.Duration) float64 {
	c := broker.NewCommitter(openLog(d), registry())
	d.Must(c.Open(b.ctx, func(event.Envelope) error { return nil }))
	fact := &run.ChunkTrained{Slot: "m-01k0000000000000000000000/0", Epoch: 7, Chunk: 1, Steps: 20, Seconds: 9.8, Loss: 0.25}
	g := broker.Group{Actor: "machine:m-01k0000000000000000000000"}
	for range n {
		g.Events = append(g.Events, event.Event{Kind: event.KindRun, ID: "r-01k0000000000000000000000", Data: fact})
	}
	began := time.Now()
	for i := 0; time.Since(began) < limit; i++ {
		g.Command = domain.CommandID(fmt.Sprintf("c-%d", i))
		_, err := c.Commit(b.ctx, time.Now(), []broker.Group{g})
		d.Must(err)
	}
	seq, _ := c.Head()
	return float64(seq) / time.Since(began).Seconds()
}

// fillLog writes the log of a run that is claimed and trained chunk by chunk by one slot, at least n events.
func fillLog(d *bed, b *bench, c *broker.Committer, n int) {
	const slot = domain.SlotID("m-1/0")
	const perRun = 20_000 // chunks of a round
	var state *run.State
	var seq uint64
	g := broker.Group{Actor: "hub"}
	flush := func() {
		g.Command = domain.CommandID(fmt.Sprintf("f-%d", seq))
		_, err := c.Commit(b.ctx, time.Now(), []broker.Group{g})
		d.Must(err)
		g.Events = nil
	}
	for r := 0; int(seq) < n; r++ {
		id := fmt.Sprintf("r-%d", r)
		state = nil
		decide := func(cmd run.Command) {
			facts, err := run.Decide(state, cmd)
			d.Must(err)
			for _, f := range facts {
				seq++
				state = run.Evolve(state, event.Envelope{Seq: seq, Kind: event.KindRun, Agg: id, Data: f, Version: 1})
				g.Events = append(g.Events, event.Event{Kind: event.KindRun, ID: id, Data: f})
			}
			if len(g.Events) >= 900 { // a command here yields a few
				flush()
			}
		}
		oneRun(d, decide, func() *run.State { return state }, slot, min(perRun, (n-int(seq))/2))
	}
	flush()
}

// oneRun begins a run with one slot and trains chunks one after another.
func oneRun(d *bed, decide func(run.Command), state func() *run.State, slot domain.SlotID, chunks int) {
	data := run.Dataset{Blob: anyBase, Samples: 32 * max(1, chunks), Features: 4, Classes: 2, Block: 1 << 12}
	spec, err := run.Resolve(run.Spec{Name: "replayed", Data: run.Data{Path: "x.csv"}, Model: run.Model{Kind: "mlp", Hidden: []int{8}},
		Batch: 32, Epochs: 1, Chunk: 32, Round: run.Round{Chunks: max(1, chunks)}}, data)
	d.Must(err)
	decide(run.Submit{Spec: spec, Data: data})
	decide(run.GrantLease{Slot: slot, Unit: run.UnitInit, Reason: "first weights"})
	decide(run.Initialise{Slot: slot, Epoch: state().Leases[slot].Epoch, Base: anyBase, Layout: anyBase, Params: 50})
	decide(run.OpenRound{})
	decide(run.GrantLease{Slot: slot, Unit: run.UnitTrain, Round: 1, Reason: "to train"})
	decide(run.AssignShard{Slot: slot, Chunks: state().Open.Pool, Reason: "alone"})
	for range chunks {
		decide(run.Claim{Slot: slot, Count: 1})
		l := state().Leases[slot]
		decide(run.ReportTrained{Slot: slot, Epoch: l.Epoch, Number: state().Number(slot), Chunk: l.Claimed[0], Steps: 1, Seconds: 0.5, Loss: 0.25})
	}
}
