package main

import (
	"fmt"
	"slices"
	"time"

	"tensorturn/broker"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
)

// Sizes of the past that a hub starts on: runs as a small pool has them.
const (
	pastMachines = 4
	pastSlots    = 2   // of each
	pastChunks   = 200 // of a round
	pastRounds   = 20  // of a run
)

// past writes the log of a pool that has trained for years: machines join, runs are submitted, dealt, claimed, stolen, lost,
// contributed, merged and completed. Every fact is decided by the aggregates and stored by the hub's committer, in batches.
type past struct {
	d      *bed
	b      *bench
	commit *broker.Committer
	seq    uint64
	clock  time.Time
	group  broker.Group
	run    *run.State
	runs   int
	ids    map[string]*machine.State
	slots  []domain.SlotID
}

// writePast stores at least n events.
func writePast(d *bed, b *bench, c *broker.Committer, n int) {
	p := &past{d: d, b: b, commit: c, clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), group: broker.Group{Actor: "hub"}, ids: map[string]*machine.State{}}
	facts, err := pool.Decide(nil, pool.Found{At: p.clock})
	d.Must(err)
	p.write(event.KindPool, pool.ID, facts)
	for i := range pastMachines {
		id := fmt.Sprintf("m-%d", i)
		p.machine(id, machine.Enrol{ID: domain.MachineID(id), Name: id, NKey: "U" + id, Account: "A" + id, Slots: pastSlots, At: p.clock})
		p.machine(id, machine.Connect{Incarnation: domain.Incarnation("i-" + id), Slots: pastSlots})
		for k := range pastSlots {
			p.slots = append(p.slots, domain.Slot(domain.MachineID(id), k))
		}
	}
	for int(p.seq) < n {
		p.oneRun(min(pastRounds, 1+(n-int(p.seq))/(2*pastChunks)))
	}
	p.flush()
}

// write gives facts their places; the caller folds them.
func (p *past) write(k event.Kind, id string, facts []event.Data) []event.Envelope {
	var es []event.Envelope
	for _, f := range facts {
		p.seq++
		p.clock = p.clock.Add(300 * time.Millisecond)
		es = append(es, event.Envelope{Seq: p.seq, Kind: k, Agg: id, Time: p.clock, Data: f, Version: 1})
		p.group.Events = append(p.group.Events, event.Event{Kind: k, ID: id, Data: f})
	}
	if len(p.group.Events) > domain.MaxBatchEvents/2 {
		p.flush()
	}
	return es
}

func (p *past) flush() {
	if len(p.group.Events) == 0 {
		return
	}
	p.group.Command = domain.CommandID(fmt.Sprintf("f-%d", p.seq))
	if len(p.group.Events) > domain.MaxBatchEvents {
		p.d.Fatalf("%d events of one command", len(p.group.Events))
	}
	_, err := p.commit.Commit(p.b.ctx, p.clock, []broker.Group{p.group})
	p.d.Must(err)
	p.group.Events = nil
}

func (p *past) machine(id string, c machine.Command) {
	facts, err := machine.Decide(p.ids[id], c)
	p.d.Must(err)
	for _, e := range p.write(event.KindMachine, id, facts) {
		p.ids[id] = machine.Evolve(p.ids[id], e)
	}
}

func (p *past) do(c run.Command) {
	facts, err := run.Decide(p.run, c)
	p.d.Must(err)
	for _, e := range p.write(event.KindRun, fmt.Sprintf("r-%d", p.runs), facts) {
		p.run = run.Evolve(p.run, e)
	}
}

func (p *past) oneRun(rounds int) {
	p.runs++
	p.run = nil
	data := run.Dataset{Blob: anyBase, Samples: 32 * pastChunks * rounds, Features: 4, Classes: 2, Block: 1 << 12}
	spec, err := run.Resolve(run.Spec{Name: fmt.Sprintf("digits-%d", p.runs), Data: run.Data{Path: "x.csv"}, Model: run.Model{Kind: "mlp", Hidden: []int{8}},
		Batch: 32, Epochs: 1, Chunk: 32, Round: run.Round{Chunks: pastChunks}, Codec: run.CodecFP32}, data)
	p.d.Must(err)
	p.do(run.Submit{Spec: spec, Data: data})
	p.do(run.GrantLease{Slot: p.slots[0], Unit: run.UnitInit, Reason: "first weights"})
	p.do(run.Initialise{Slot: p.slots[0], Epoch: p.run.Leases[p.slots[0]].Epoch, Base: p.blob("base", 0), Layout: anyBase, Params: 50})
	for !p.run.Done() {
		p.round()
	}
}

// round deals the chunks, loses one slot on the way, lets another steal, and merges.
func (p *past) round() {
	p.do(run.OpenRound{Expected: 60})
	n := p.run.Open.Number
	for i, slot := range p.slots {
		p.do(run.GrantLease{Slot: slot, Unit: run.UnitTrain, Round: n, Reason: "to train"})
		queued := p.run.Open.Pool
		p.do(run.AssignShard{Slot: slot, Chunks: slices.Clone(queued[:len(queued)/(len(p.slots)-i)]), Speed: 320, Reason: "a share by speed"})
	}
	lost := p.slots[n%len(p.slots)]
	p.train(lost, 5)
	p.do(run.ExpireLease{Slot: lost, Reason: "silent", Silent: 120})
	for p.anyLeft() {
		for i, slot := range p.slots {
			if p.run.Leases[slot] == nil {
				continue
			}
			if len(p.run.Open.Shards[slot]) == 0 {
				p.refill(slot)
			}
			p.train(slot, 2+i) // some are faster
		}
	}
	for _, slot := range p.slots {
		if l := p.run.Leases[slot]; l != nil {
			p.contribute(slot, l)
		}
	}
	p.do(run.CloseRound{Round: n})
	for _, slot := range p.slots {
		if p.run.Leases[slot] != nil {
			p.do(run.ReleaseLease{Slot: slot, Reason: "the round is over"})
		}
	}
	p.do(run.RecordMerge{Round: n, NextBase: p.blob("base", n), NextMomentum: p.blob("momentum", n), StepNorm: 0.5})
}

func (p *past) anyLeft() bool {
	left := len(p.run.Open.Pool)
	for _, s := range p.run.Open.Shards {
		left += len(s)
	}
	return left > 0
}

// refill deals what the lost slot left, or steals from whoever has most.
func (p *past) refill(slot domain.SlotID) {
	if queued := p.run.Open.Pool; len(queued) > 0 {
		p.do(run.AssignShard{Slot: slot, Chunks: slices.Clone(queued[:min(4, len(queued))]), Speed: 320, Reason: "requeued"})
		return
	}
	victim := domain.SlotID("")
	for _, s := range p.slots {
		if n := len(p.run.Open.Shards[s]); n > 1 && (victim == "" || n > len(p.run.Open.Shards[victim])) {
			victim = s
		}
	}
	if victim != "" {
		p.do(run.Steal{From: victim, To: slot, Count: len(p.run.Open.Shards[victim]) / 2, Gain: 3, Reason: "finishes earlier"})
	}
}

// train claims and trains up to n chunks of the slot's shard, two at a claim.
func (p *past) train(slot domain.SlotID, n int) {
	n = min(n, len(p.run.Open.Shards[slot]))
	for n > 0 {
		take := min(2, n)
		p.do(run.Claim{Slot: slot, Count: take})
		l := p.run.Leases[slot]
		for range take {
			p.do(run.ReportTrained{Slot: slot, Epoch: l.Epoch, Number: p.run.Number(slot), Chunk: l.Claimed[0], Steps: 1, Seconds: 0.5, Loss: 0.25})
		}
		n -= take
	}
}

func (p *past) contribute(slot domain.SlotID, l *run.Lease) {
	if len(l.Trained) == 0 {
		return
	}
	p.do(run.OfferContribution{Slot: slot, Epoch: l.Epoch, Number: p.run.Number(slot), Chunks: slices.Clone(l.Trained), Boundaries: []int{len(l.Trained)},
		Steps: len(l.Trained), Blob: p.blob("delta "+string(slot), p.run.Open.Number), Codec: run.CodecFP32, Inspection: &run.Inspection{Norm: 1}})
}

// blob names bytes that nobody reads here.
func (p *past) blob(what string, n int) domain.Digest {
	return event.Digest(fmt.Appendf(nil, "%d %s %d", p.runs, what, n))
}
