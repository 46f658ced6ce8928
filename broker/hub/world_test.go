package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tensorturn/broker/memory"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
)

// testLease is L in these tests: sync every second, suspect after 3 s, lost after 24 s.
const testLease = 24 * time.Second

func registry() *event.Registry {
	r := event.NewRegistry()
	run.Register(r)
	machine.Register(r)
	pool.Register(r)
	return r
}

// world is a hub core on a log in memory, fake agents, and a clock that stands still unless it is told to move. Workers
// answer at once and find nothing wrong unless they are told to.
type world struct {
	t          testing.TB
	log        *memory.Log
	reg        *event.Registry
	core       *Core
	now        time.Time
	starts     int
	agents     []*fakeAgent
	events     []event.Envelope // given out, in order
	shown      int              // of events
	acts       []string         // outputs that are neither events nor answers
	held       []Output         // jobs whose workers are told to wait
	hold       bool
	holdMerges bool                        // of the jobs, merges alone wait
	finds      map[domain.SlotID]Inspected // what inspections of a slot find instead of nothing wrong
	merge      func(MergeJob) Merged       // nil merges without trouble
	vote       func(VoteJob) Counted
	cmds       int
	steps      int
	detail     bool        // tell of trained chunks
	frozen     *frozenFold // the state some steps ago
	cast       bool        // the answers to syncs do not reach the agents
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, log: memory.NewLog(nil), reg: registry(), now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), finds: map[domain.SlotID]Inspected{}}
	w.open()
	w.must(w.do(event.KindPool, "pool", pool.Found{At: w.now}))
	return w
}

// open starts a hub process on the log.
func (w *world) open() {
	w.starts++
	w.core = New(Config{Timing: domain.TimingOf(testLease), Process: fmt.Sprintf("p%d", w.starts)}, w.log, w.reg)
	if err := w.core.Open(context.Background(), w.now); err != nil {
		w.t.Fatal(err)
	}
	w.held = nil
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// step gives inputs to the hub, lets workers answer, and returns the answers.
func (w *world) step(in ...Input) []Answer {
	answers := make([]Answer, len(in))
	var results []Input
	for _, o := range w.core.Step(context.Background(), w.now, in) {
		switch o := o.(type) {
		case Answer:
			answers[o.Index] = o
		case Committed:
			w.events = append(w.events, o.Events...)
		case InspectJob, MergeJob, VoteJob:
			if _, merge := o.(MergeJob); w.hold || merge && w.holdMerges {
				w.held = append(w.held, o)
			} else {
				results = append(results, w.work(o))
			}
		case Wake:
			w.acts = append(w.acts, "wake "+string(o.Machine))
		case Admit:
			w.acts = append(w.acts, "admit "+string(o.Machine))
		case CutOff:
			w.acts = append(w.acts, "cut off "+string(o.Machine))
		}
	}
	w.checkFold()
	if len(results) > 0 {
		w.step(results...)
	}
	return answers
}

// work is a worker's answer to a job.
func (w *world) work(o Output) Input {
	switch j := o.(type) {
	case InspectJob:
		if f, ok := w.finds[j.Slot]; ok {
			f.Job = j
			return f
		}
		return Inspected{Job: j, Found: run.Inspection{Norm: 1}}
	case VoteJob:
		return w.vote(j)
	case MergeJob:
		if w.merge != nil {
			return w.merge(j)
		}
		return goodMerge(j)
	}
	panic("no job")
}

func goodMerge(j MergeJob) Merged {
	return Merged{Job: j, Base: digest("base", j.Run, j.Round), Momentum: digest("momentum", j.Run, j.Round), StepNorm: 1}
}

// release lets the workers that wait finish.
func (w *world) release() {
	held := w.held
	w.held, w.hold, w.holdMerges = nil, false, false
	var results []Input
	for _, o := range held {
		results = append(results, w.work(o))
	}
	if len(results) > 0 {
		w.step(results...)
	}
}

// checkFold replays the log and compares: what the hub holds is the fold of what is stored.
func (w *world) checkFold() {
	w.t.Helper()
	w.steps++
	if w.core.ReadOnly() != nil || w.core.stale != nil || len(w.events) > 100 && w.steps%16 != 0 {
		return // replaying a long log at every step would only heat the room
	}
	replayed := New(w.core.cfg, w.log, w.reg)
	if err := replayed.Open(context.Background(), w.now); err != nil {
		w.t.Fatal(err)
	}
	if d := foldDiff(replayed.fold, w.core.fold); d != "" {
		w.t.Fatalf("the fold of the log differs from the live state (-log +live):\n%s", d)
	}
	if w.frozen != nil {
		if d := foldDiff(replayed.fold, w.begun(*w.frozen).fold); d != "" {
			w.t.Fatalf("the fold of the log differs from a snapshot at %d and its tail (-log +snapshot):\n%s", w.frozen.at.Seq, d)
		}
	}
	at, b, ok, err := w.core.Freeze()
	w.must(err)
	if w.frozen = nil; ok {
		w.frozen = &frozenFold{at, b}
	}
}

// frozenFold is what Core.Freeze gave.
type frozenFold struct {
	at Position
	b  []byte
}

// begun is a core that began from a frozen fold.
func (w *world) begun(f frozenFold) *Core {
	w.t.Helper()
	cfg := w.core.cfg
	cfg.Base = func(context.Context) *Base {
		b, err := Thaw(f.at, f.b)
		w.must(err)
		return b
	}
	c := New(cfg, w.log, w.reg)
	w.must(c.Open(context.Background(), w.now))
	if c.ReadOnly() != nil || c.began != f.at {
		w.t.Fatalf("began at %v, not at %v; read-only: %v", c.began, f.at, c.ReadOnly())
	}
	return c
}

// foldDiff is empty for equal folds. What is nil and what is empty may differ: live facts and decoded ones differ in it.
func foldDiff(a, b *fold) string {
	if reflect.DeepEqual(a, b) {
		return "" // cmp is slow and would say the same
	}
	return cmp.Diff(a, b, cmp.AllowUnexported(fold{}, causes{}), cmpopts.EquateEmpty())
}

func (w *world) do(kind event.Kind, id string, cmd any) error {
	w.cmds++
	return w.step(Do{Command: domain.CommandID(fmt.Sprintf("c-%d", w.cmds)), Actor: "operator", Targets: []Target{{Kind: kind, ID: id, Command: cmd}}})[0].Err
}

// enrol adds a machine and its agent.
func (w *world) enrol(name string, slots int, speed float64) *fakeAgent {
	w.t.Helper()
	id := domain.MachineID(name)
	w.must(w.do(event.KindMachine, name, machine.Enrol{ID: id, Name: name, NKey: "U" + name, Account: "A" + name, Slots: slots, At: w.now}))
	a := newFakeAgent(id, slots, speed)
	w.agents = append(w.agents, a)
	return a
}

func (w *world) agent(name string) *fakeAgent {
	for _, a := range w.agents {
		if a.id == domain.MachineID(name) {
			return a
		}
	}
	w.t.Fatalf("there is no agent %s", name)
	return nil
}

// submit begins a run of one epoch.
func (w *world) submit(id string, change func(*run.Spec, *run.Dataset)) {
	w.t.Helper()
	s := run.Spec{Name: id, Epochs: 1, Batch: 10, Chunk: 10, Codec: run.CodecFP32, Round: run.Round{Chunks: 6}}
	d := run.Dataset{Blob: digest("data"), Samples: 120, Heldout: 20, Features: 4, Classes: 2, Block: 120}
	if change != nil {
		change(&s, &d)
	}
	s, err := run.Resolve(s, d)
	w.must(err)
	w.must(w.do(event.KindRun, id, run.Submit{Spec: s, Data: d}))
}

// sync lets an agent speak and hear the answer.
func (w *world) sync(a *fakeAgent) *wire.SyncReply {
	r := w.step(Sync{Machine: a.id, Request: a.request()})[0].Reply
	if !w.cast {
		a.hear(r)
	}
	return r
}

// pass lets time pass: every second the agents work, speak, and the hub ticks.
func (w *world) pass(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(time.Second)
		for _, a := range w.agents {
			if a.dead {
				continue
			}
			a.work(1)
			if !a.silent {
				w.sync(a)
			}
		}
		w.step(Tick{})
	}
}

// until lets time pass until the condition holds, for an hour at most.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	for range 3600 {
		if holds() {
			return
		}
		w.pass(time.Second)
	}
	w.t.Fatalf("an hour has passed and still not: %s\n%s", what, w.tail(20))
}

func (w *world) state(id string) *run.State { return w.core.fold.runs[domain.RunID(id)] }

// news tells the events since the last call.
func (w *world) news() string {
	var b strings.Builder
	for _, e := range w.events[w.shown:] {
		if line := w.brief(e); line != "" {
			fmt.Fprintf(&b, "%s by %s: %s\n", e.Data.EventName(), e.Actor, line)
		}
	}
	w.shown = len(w.events)
	return b.String()
}

// brief renders an event without the planner's figures, which have scenarios of their own: sequences, chunks, what was
// dealt, claimed and stolen.
func (w *world) brief(e event.Envelope) string {
	switch d := e.Data.(type) {
	case *run.ShardAssigned, *run.ShardReturned, *run.ChunksClaimed, *run.ChunksStolen:
		return ""
	case *run.ChunkTrained:
		if !w.detail {
			return ""
		}
		return string(d.Slot)
	case *run.LeaseGranted:
		return fmt.Sprintf("%s gets the %s unit of round %d", d.Slot, d.Unit, d.Round)
	case *run.LeaseReleased:
		return fmt.Sprintf("%s gives its lease back (%s)", d.Slot, d.Reason)
	case *run.LeaseExpired:
		return fmt.Sprintf("%s loses its lease after %.0f s (%s), requeues %v", d.Slot, d.Silent, d.Reason, len(d.Requeued) > 0)
	case *run.TaskFailed:
		return fmt.Sprintf("%s fails at %s, %d. time: %s", d.Slot, d.Unit, d.Count, d.Error)
	case *run.RoundOpened:
		return fmt.Sprintf("round %d", d.Round)
	case *run.ContributionRequested:
		return fmt.Sprintf("%s, number %d", d.Slot, d.Number)
	case *run.ContributionAccepted:
		return fmt.Sprintf("%s, number %d", d.Slot, d.Number)
	case *run.ContributionRefused:
		return fmt.Sprintf("%s, number %d, %s", d.Slot, d.Number, d.Why)
	case *run.ContributionRevoked:
		return fmt.Sprintf("%s, number %d, %s", d.Slot, d.Number, d.Reason)
	case *run.RoundClosed:
		return fmt.Sprintf("round %d (%s)", d.Round, d.Reason)
	case *run.RoundMerged:
		return fmt.Sprintf("round %d", d.Round)
	case *run.Evaluated:
		return fmt.Sprintf("%s, round %d", d.Slot, d.Round)
	}
	return e.Data.Line()
}

func (w *world) tail(n int) string {
	w.shown = max(0, len(w.events)-n)
	return w.news()
}

// find lists the events of one type.
func find[T event.Data](w *world) []T {
	var out []T
	for _, e := range w.events {
		if d, ok := e.Data.(T); ok {
			out = append(out, d)
		}
	}
	return out
}

func digest(parts ...any) domain.Digest {
	h := sha256.Sum256([]byte(fmt.Sprint(parts...)))
	return domain.Digest(hex.EncodeToString(h[:]))
}
