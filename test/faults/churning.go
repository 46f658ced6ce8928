package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/projections/goodput"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
	"tensorturn/test/plain"
)

// churnChunk is a chunk in samples: a second of a steady trainer, 25 batches.
const (
	churnBatch = 64
	churnChunk = 25 * churnBatch
)

// maxChurn is how many machines a churn may have: each is named by a letter.
const maxChurn = 26

// churnLease is the product's own: other rows shorten it.
const churnLease = 2 * time.Minute

// churnCap is how many times its length a churn may last until the open round has ended.
const churnCap = 3

// churnAgent has agents dial as shipped; other rows hurry them.
var churnAgent = []string{"--reconnect", "0s"}

// churnNames names the n machines of a churn, each with a trainer that is a process of its own.
func churnNames(n int) []string {
	var out []string
	for i := range n {
		out = append(out, string(rune('a'+i)))
	}
	return out
}

// churning kills something at random, evenly over the time, and compares what was counted with what the machines could have done
// in the time they were there.
func churning(o options, bin string) error {
	return kit.InBed(os.Stderr, func(b *kit.Bed) {
		w := newWorld(b, bin, false, o.seed)
		r := w.churned(o)
		printSeconds(os.Stdout, r.seconds)
		fmt.Println(r)
		if r.efficiency < o.least {
			b.Errorf("efficiency %.3f, want %.2f at least", r.efficiency, o.least)
		}
	})
}

// churned is what a churn has shown.
type churned struct {
	faults               map[string]int
	took                 time.Duration
	counted              int64
	possible, efficiency float64
	strict               float64 // the same, with the time of the hub's outages counted as time the machines could have worked
	alone                float64 // the same, at the speed of one machine alone in the pool, before the others were started
	expired, requeued    int
	rounds, absent       int
	seconds              goodput.Row
}

// weigh compares what was counted with what each slot could have trained at its own speed in the seconds it was connected. That speed
// is measured while it trains beside all the others of this computer: who else uses its cores is no fault of a pool.
func (c *churned) weigh(r goodput.Report, hubGone, solo float64) {
	c.seconds = r.Total
	all, alone := 0.0, 0.0
	for _, s := range r.Slots {
		connected := s.Connected - hubGone
		c.possible += connected * s.Speed
		alone += connected * solo
		all += s.Connected * s.Speed
	}
	c.efficiency, c.strict, c.alone = float64(c.counted)/c.possible, float64(c.counted)/all, float64(c.counted)/alone
}

func (c churned) String() string {
	return fmt.Sprintf("%d faults (%d hub, %d agents, %d trainers) in %.0f s: %d samples counted of %.0f possible at the slots' speeds: efficiency %.3f (%.3f if outages of the hub are the machines' time, %.3f at the speed of one machine alone on this computer); "+
		"%d leases lost, %d chunks queued again (kept ones counted all the same); %d rounds, %d times a machine that was there all round was not in its merge; ledger exact, merges bit-exact",
		c.faults["hub"]+c.faults["agent"]+c.faults["trainer"], c.faults["hub"], c.faults["agent"], c.faults["trainer"], c.took.Seconds(), c.counted, c.possible,
		c.efficiency, c.strict, c.alone, c.expired, c.requeued, c.rounds, c.absent)
}

// presence notes when machines and the hub are away: a machine from the kill until the hub has heard of its next process.
type presence struct {
	mu      sync.Mutex
	gone    []gap // of each machine
	hubGone []gap
	hub     time.Duration // all of hubGone
}

type gap struct {
	name     string
	from, to time.Time
}

func (p *presence) off(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = append(p.gone, gap{name: name, from: time.Now()})
}

// back notes the end of the machine's newest absence.
func (p *presence) back(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.gone) - 1; i >= 0; i-- {
		if p.gone[i].name == name && p.gone[i].to.IsZero() {
			p.gone[i].to = time.Now()
			return
		}
	}
}

// churned runs the pool under faults and weighs what came of it.
func (w *world) churned(o options) churned {
	names := churnNames(o.machines)
	faults, length := o.faults, time.Duration(o.minutes*float64(time.Minute))
	w.Pool.Lease = churnLease
	w.StartHub("--min-free", "1048576")
	w.witness = watch(w)
	there := &presence{}
	solo := w.soloSpeed()
	for _, n := range names {
		w.agents[n] = w.StartAgent(n, churnAgent...)
	}
	id := w.Submit(w.churnSpec("churn", len(names)*o.share, int(solo*float64(len(names))*length.Seconds()*2)))
	w.AwaitRun(id, "all to work", func(r runs.Run) bool { return len(r.Slots) == len(names) })
	out := churned{faults: map[string]int{}}
	var work sync.WaitGroup
	tick := time.NewTicker(length / time.Duration(faults))
	defer tick.Stop()
	far := newProgress("churn")
	last := 0 // the round that was open when the time was over: the faults go on until its end
	for began := time.Now(); ; {
		<-tick.C
		if time.Since(began) > churnCap*length {
			w.Fatalf("round %d has not ended after %d times the length: %s", last, churnCap, length)
		}
		if r, ok := w.Show(id); ok {
			if r.Phase.Ended() {
				w.Fatalf("the run ended before its time: %s %s", r.Phase, r.Reason)
			}
			far.tell("%.0f of %.0f minutes, %d rounds, faults %v", time.Since(began).Minutes(), o.minutes, r.Rounds.Merged, out.faults)
			if last > 0 && r.Rounds.Merged >= last {
				break
			}
			if last == 0 && time.Since(began) >= length {
				last = r.Rounds.Merged + 1
			}
		}
		switch kind := []string{"hub", "agent", "trainer"}[w.rng.IntN(3)]; kind {
		case "hub":
			out.faults[kind]++
			w.Hub.Kill()
			at := time.Now()
			w.StartHub("--min-free", "1048576")
			there.hub += time.Since(at)
			there.hubGone = append(there.hubGone, gap{from: at, to: time.Now()})
		case "agent":
			n := names[w.rng.IntN(len(names))]
			out.faults[kind]++
			w.agents[n].Kill()
			there.off(n)
			w.agents[n] = w.SpawnAgent(n, churnAgent...)
			w.awaitBack(n, there, &work)
		case "trainer":
			n := names[w.rng.IntN(len(names))]
			for _, pid := range children(w.agents[n].PID()) {
				_ = syscall.Kill(pid, syscall.SIGSEGV) // SIGKILL would be taken for want of memory, and the batch be halved
				out.faults[kind]++
				break
			}
		}
	}
	work.Wait()
	r := w.show(id)
	began, ended, done := w.span(id, last)
	out.took, out.counted = ended.Sub(began), done
	out.weigh(w.ledger(id, began, ended, there, names), there.hub.Seconds(), solo)
	w.Say("run", "cancel", string(id))
	r = w.over(id)
	out.expired, out.requeued, out.rounds = r.Totals.Expired, r.Totals.Requeued, r.Rounds.Merged
	out.absent = w.absent(id, there, names)
	if out.absent > 0 {
		w.Errorf("%d times a machine that was there from the opening of a round to its closing is not in its merge", out.absent)
	}
	w.intact()
	w.once(id)
	return out
}

// span is the time from the opening of the first round to the closing of the last one, and the samples counted in it: whole rounds, so
// that what is in hand at either end makes no difference.
func (w *world) span(id domain.RunID, last int) (began, ended time.Time, counted int64) {
	sum := int64(0)
	for _, e := range w.Events() {
		if e.Agg != string(id) {
			continue
		}
		switch d := e.Data.(type) {
		case *run.RoundOpened:
			if began.IsZero() {
				began = e.Time
			}
		case *run.RoundClosed:
			if d.Round <= last {
				ended, counted = e.Time, sum
			}
		case *run.ContributionAccepted:
			sum += d.Samples
		}
	}
	return began, ended, counted
}

// awaitBack notes when the machine has come back. Its process is new; the hub tells.
func (w *world) awaitBack(n string, there *presence, work *sync.WaitGroup) {
	want := w.restarts[n] + 1
	w.restarts[n] = want
	work.Go(func() {
		for range 400 {
			if m, ok := w.TryMachine(n); ok && m.Restarts >= want && m.Standing == "online" {
				there.back(n)
				return
			}
			<-time.After(25 * time.Millisecond)
		}
	})
}

// churnSpec is a run of about n samples, in rounds of the given number of chunks, of a process trainer whose speed does not depend
// on what else this machine does.
func (w *world) churnSpec(name string, round, n int) string {
	exe, err := os.Executable()
	w.Must(err)
	code := w.TempDir()
	w.Must(os.WriteFile(filepath.Join(code, "README"), []byte("the program is elsewhere\n"), 0o600))
	samples := round * churnChunk
	return fmt.Sprintf("name: %s\ntrainer: process\ncommand: [%q, %q]\ncode: %s\nbatch: %d\nchunk: %d\nepochs: %d\nround: {chunks: %d}\n"+
		"data: {samples: %d, heldout: 8, features: %d, classes: %d}\n", name, exe, asSteady, code, churnBatch, churnChunk, max(1, n/samples), round, samples, plain.Features, plain.Classes)
}

// soloSpeed is what one machine trains when nobody disturbs it, in samples a second.
func (w *world) soloSpeed() float64 {
	w.agents["solo"] = w.StartAgent("solo")
	id := w.Submit(w.churnSpec("solo", 20, 1<<20))
	w.AwaitRun(id, "some chunks", func(r runs.Run) bool { return len(r.Slots) > 0 && r.Slots[0].Chunks >= 10 })
	r := w.show(id)
	s := r.Slots[0]
	w.Say("run", "cancel", string(id))
	w.agents["solo"].Stop(kit.Patience)
	v := float64(s.Chunks*r.Spec.Chunk) / s.Seconds
	fmt.Printf("one machine alone: %.0f samples a second\n", v)
	return v
}

// absent counts how often a machine that was there from a round's opening to its closing has nothing in its merge.
func (w *world) absent(id domain.RunID, there *presence, names []string) int {
	owner := map[domain.MachineID]string{}
	for _, n := range names {
		owner[w.machine(n).ID] = n
	}
	n := 0
	var opened time.Time
	in := map[string]bool{}
	for _, e := range w.Events() {
		if e.Agg != string(id) {
			continue
		}
		switch d := e.Data.(type) {
		case *run.RoundOpened:
			opened, in = e.Time, map[string]bool{}
		case *run.ContributionAccepted:
			in[owner[d.Slot.Machine()]] = true
		case *run.RoundClosed:
			for _, name := range names {
				if !in[name] && !there.wasGone(name, opened, e.Time) {
					n++
				}
			}
		}
	}
	return n
}

// wasGone reports whether the machine was away at any time between from and to.
func (p *presence) wasGone(name string, from, to time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.gone {
		end := g.to
		if end.IsZero() {
			end = to
		}
		if g.name == name && g.from.Before(to) && end.After(from) {
			return true
		}
	}
	return false
}
