package hub

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tensorturn/broker/memory"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
)

func TestRunCompletes(t *testing.T) {
	w := newWorld(t)
	w.enrol("a", 1, 10)
	w.enrol("b", 2, 5)
	w.submit("r-1", nil)
	w.until("the run completes", func() bool { return w.state("r-1").Phase == run.PhaseCompleted })
	if l := w.state("r-1").Ledger(); l.Expected != 120 || l.Counted != l.Expected {
		t.Errorf("ledger %+v", l)
	}
	if st := w.core.Stats(); st != (Stats{}) {
		t.Errorf("something was refused: %+v\n%s", st, w.tail(100))
	}
	if n := len(find[*run.ContributionRefused](w)); n != 0 {
		t.Errorf("%d contributions refused of honest agents", n)
	}
}

// A log is the same whoever replays it, and the same inputs give the same log.
func TestSameInputsSameLog(t *testing.T) {
	story := func() []event.Envelope {
		w := newWorld(t)
		w.enrol("a", 2, 10)
		w.enrol("b", 2, 5)
		w.submit("r-1", nil)
		w.submit("r-2", nil)
		w.pass(10 * time.Second)
		w.agent("a").restart()
		w.pass(30 * time.Second)
		return w.events
	}
	if d := cmp.Diff(story(), story()); d != "" {
		t.Error(d)
	}
}

func TestSyncRefusals(t *testing.T) {
	type change = func(w *world, in *Sync)
	cases := map[string]struct {
		change change
		kind   domain.Kind
		why    string
	}{
		"unknown machine":       {func(_ *world, in *Sync) { in.Machine = "x" }, domain.KindDenied, "not enrolled"},
		"revoked machine":       {func(w *world, _ *Sync) { w.must(w.do(event.KindMachine, "a", machine.Revoke{})) }, domain.KindDenied, "revoked"},
		"other version":         {func(_ *world, in *Sync) { in.Request.Version = 2 }, domain.KindInvalid, "version 2"},
		"no incarnation":        {func(_ *world, in *Sync) { in.Request.Incarnation = "" }, domain.KindInvalid, "incarnation"},
		"no slots":              {func(_ *world, in *Sync) { in.Request.Slots = nil }, domain.KindInvalid, "0 slots"},
		"too many slots":        {func(_ *world, in *Sync) { in.Request.Slots = make([]wire.SlotReport, 65) }, domain.KindInvalid, "65 slots"},
		"other number of slots": {func(_ *world, in *Sync) { in.Request.Slots = in.Request.Slots[:1] }, domain.KindInvalid, "it had 2"},
		"slots out of order":    {func(_ *world, in *Sync) { in.Request.Slots[0].Index = 1 }, domain.KindInvalid, "position 0"},
		"ended incarnation": {func(w *world, in *Sync) {
			w.agent("a").restart()
			w.sync(w.agent("a"))
		}, domain.KindFenced, "another agent process"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.enrol("a", 2, 1)
			w.sync(a)
			in := Sync{Machine: "a", Request: a.request()}
			c.change(w, &in)
			before, _ := w.core.Head()
			got := w.step(in)[0]
			if got.Reply == nil || got.Reply.Error == nil || got.Reply.Error.Kind != c.kind || !strings.Contains(got.Reply.Error.Why, c.why) {
				t.Errorf("reply %+v, want %s with %q", got.Reply, c.kind, c.why)
			}
			if domain.KindOf(got.Err) != c.kind {
				t.Errorf("error %v", got.Err)
			}
			if after, _ := w.core.Head(); after != before {
				t.Errorf("a refused sync wrote %d events", after-before)
			}
		})
	}
}

func TestDoRefusals(t *testing.T) {
	token := pool.CreateToken{ID: "t-1", Hash: digest("secret"), Expires: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)}
	enrol := machine.Enrol{ID: "b", Name: "b", NKey: "Ub", Account: "Ab", Slots: 1}
	target := func(kind event.Kind, id string, cmd any) Target { return Target{Kind: kind, ID: id, Command: cmd} }
	many := make([]Target, MaxTargets+1)
	for i := range many {
		many[i] = target(event.KindMachine, fmt.Sprintf("m-%d", i), machine.Drain{})
	}
	cases := map[string]struct {
		do   Do
		kind domain.Kind
		why  string
	}{
		"no id":          {Do{Targets: []Target{target(event.KindPool, "pool", token)}}, domain.KindInvalid, "no valid id"},
		"the hub's id":   {Do{Command: "hub-1", Targets: []Target{target(event.KindPool, "pool", token)}}, domain.KindInvalid, "no valid id"},
		"no targets":     {Do{Command: "c"}, domain.KindInvalid, "0 targets"},
		"too many":       {Do{Command: "c", Targets: many}, domain.KindInvalid, "17 targets"},
		"twice the same": {Do{Command: "c", Targets: []Target{target(event.KindMachine, "a", machine.Drain{}), target(event.KindMachine, "a", machine.Drain{})}}, domain.KindInvalid, "twice"},
		"no kind":        {Do{Command: "c", Targets: []Target{target("moon", "a", machine.Drain{})}}, domain.KindInvalid, "moon"},
		"wrong command":  {Do{Command: "c", Targets: []Target{target(event.KindRun, "r-1", machine.Drain{})}}, domain.KindInvalid, "not a command of a run"},
		"unknown run":    {Do{Command: "c", Targets: []Target{target(event.KindRun, "r-9", run.Resume{})}}, domain.KindNotFound, "no such run"},
		"bad run id":     {Do{Command: "c", Targets: []Target{target(event.KindRun, "R 9", run.Resume{})}}, domain.KindInvalid, "not an id"},
		"taken account":  {Do{Command: "c", Targets: []Target{target(event.KindMachine, "b", machine.Enrol{ID: "b", NKey: "Ub", Account: "Aa", Slots: 1})}}, domain.KindConflict, "belongs to machine a"},
		"one of two": {Do{Command: "c", Targets: []Target{target(event.KindMachine, "b", enrol),
			target(event.KindPool, "pool", pool.UseToken{ID: "t-9", Machine: "b"})}}, domain.KindDenied, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.enrol("a", 1, 1)
			before, _ := w.core.Head()
			err := w.step(c.do)[0].Err
			if domain.KindOf(err) != c.kind || !strings.Contains(fmt.Sprint(err), c.why) {
				t.Errorf("error %v, want %s with %q", err, c.kind, c.why)
			}
			if after, _ := w.core.Head(); after != before {
				t.Errorf("a refused command wrote %d events", after-before)
			}
		})
	}
}

// A command may be repeated: in the same batch, later, and after a restart. It happens once.
func TestDoRepeated(t *testing.T) {
	w := newWorld(t)
	d := Do{Command: "c-x", Actor: "operator", Targets: []Target{{Kind: event.KindMachine, ID: "a",
		Command: machine.Enrol{ID: "a", NKey: "Ua", Account: "Aa", Slots: 1, At: w.now}}}}
	for _, a := range w.step(d, d) {
		w.must(a.Err)
	}
	w.open()
	w.must(w.step(d)[0].Err)
	if n := len(find[*machine.BecameEnrolled](w)); n != 1 {
		t.Errorf("enrolled %d times", n)
	}
}

func TestLiveRunsLimit(t *testing.T) {
	w := newWorld(t)
	for i := range MaxLiveRuns {
		w.core.fold.live = append(w.core.fold.live, domain.RunID(fmt.Sprintf("old-%d", i)))
		w.core.fold.runs[w.core.fold.live[i]] = &run.State{ID: w.core.fold.live[i], Phase: run.PhaseCompleted}
	}
	b := newBatch(w.core, w.now, 1)
	_, err := b.decide(Target{Kind: event.KindRun, ID: "r-1", Command: run.Submit{}})
	if domain.KindOf(err) != domain.KindConflict || !strings.Contains(err.Error(), "at most 256") {
		t.Errorf("one run too many: %v", err)
	}
	w.core.fold.live = w.core.fold.live[1:]
	if _, err := b.decide(Target{Kind: event.KindRun, ID: "r-1", Command: run.Submit{}}); domain.KindOf(err) == domain.KindConflict {
		t.Errorf("the last run that has room: %v", err)
	}
}

func TestMachinesLimit(t *testing.T) {
	w := newWorld(t)
	for i := range domain.MaxMachines {
		id := domain.MachineID(fmt.Sprintf("m-%d", i))
		w.core.fold.machines[id] = &machine.State{ID: id, Standing: machine.Lost}
	}
	b := newBatch(w.core, w.now, 1)
	enrol := machine.Enrol{ID: "a", NKey: "Ua", Account: "Aa", Slots: 1, At: w.now}
	if _, err := b.decideMachine("a", enrol); domain.KindOf(err) != domain.KindConflict {
		t.Errorf("one machine too many: %v", err)
	}
	w.core.fold.machines["m-0"].Standing = machine.Revoked
	if _, err := b.decideMachine("a", enrol); err != nil {
		t.Errorf("the last machine that has room: %v", err)
	}
}

// A report that yields more events than an atomic batch holds goes into several, and every id stays valid.
func TestReportLargerThanABatch(t *testing.T) {
	w := newWorld(t)
	a := w.enrol("a", 1, 1e5)
	w.submit("r-1", func(s *run.Spec, d *run.Dataset) {
		s.Batch, s.Chunk, s.Round.Chunks, d.Samples = 1, 1, 2500, 5000
	})
	w.until("the run trains", func() bool { return w.state("r-1").Open != nil && w.state("r-1").Merged > 0 })
	w.sync(a)
	w.cast = true
	before := len(find[*run.ChunkTrained](w))
	s := w.state("r-1")
	if held := len(s.Leases["a/0"].Claimed); held < 1200 {
		t.Fatalf("only %d chunks are claimed: the test needs more than one batch of them", held)
	}
	a.work(10)
	w.sync(a)
	if n := len(find[*run.ChunkTrained](w)) - before; n < 1200 {
		t.Errorf("%d chunks reported", n)
	}
}

// Inputs are bounded; one more is a broken promise of the caller.
func TestInputsLimit(t *testing.T) {
	w := newWorld(t)
	w.core.Step(context.Background(), w.now, make([]Input, MaxInputs))
	defer func() {
		if recover() == nil {
			t.Error("a batch beyond the limit was taken")
		}
	}()
	w.core.Step(context.Background(), w.now, make([]Input, MaxInputs+1))
}

// The guards can fail: without the grace after a start, a machine is lost before it had a chance to speak.
func TestGraceCanFail(t *testing.T) {
	lost := func(grace bool) int {
		w := newWorld(t)
		w.enrol("a", 1, 5)
		w.submit("r-1", nil)
		w.until("a trains", func() bool { return w.state("r-1").Open != nil && w.state("r-1").Leases["a/0"] != nil })
		w.open()
		if !grace {
			w.core.mem.since = w.now.Add(-2 * testLease)
		}
		w.step(Tick{})
		return len(find[*run.LeaseExpired](w))
	}
	if n := lost(true); n != 0 {
		t.Errorf("%d leases expired within the grace", n)
	}
	if n := lost(false); n == 0 {
		t.Error("without the grace nothing expired: the test shows nothing")
	}
}

// While the store is full a slot that cannot turn in what it holds keeps its lease; once there is room, its clock runs.
func TestNobodyLosesALeaseToAFullStore(t *testing.T) {
	w := newWorld(t)
	w.enrol("a", 1, 5)
	w.submit("r-1", nil)
	w.until("a trains", func() bool { return w.state("r-1").Open != nil && w.state("r-1").Leases["a/0"] != nil })
	idle := func(full bool, d time.Duration) int {
		for range 16 { // in contact, without progress, and never so long between two steps that the hub forgives itself
			w.now = w.now.Add(d / 16)
			w.core.mem.contacts["a"].last = w.now
			w.step(Tick{Full: full})
		}
		return len(find[*run.LeaseExpired](w))
	}
	if n := idle(true, 3*testLease/2); n != 0 {
		t.Errorf("%d leases expired while the store was full", n)
	}
	if n := idle(false, testLease/2); n != 0 {
		t.Errorf("%d leases expired right behind it: their clocks must start afresh", n)
	}
	if n := idle(false, testLease); n == 0 {
		t.Error("a slot without progress kept its lease although there is room: the test shows nothing")
	}
}

// While the log takes nothing, the machines' words are refused: when it does again, nobody has been silent in between.
func TestNobodyLosesALeaseToAFailingLog(t *testing.T) {
	w := newWorld(t)
	w.enrol("a", 1, 5)
	w.submit("r-1", nil)
	w.until("a trains", func() bool { return w.state("r-1").Open != nil && w.state("r-1").Leases["a/0"] != nil })
	ticks := func(n int) int {
		for range n { // never so long between two steps that the hub forgives itself
			w.now = w.now.Add(testLease / 16)
			w.step(Tick{})
		}
		return len(find[*run.LeaseExpired](w))
	}
	w.log.SetFault(func(memory.Op) memory.Fault { return memory.FailBefore })
	if err := w.do(event.KindMachine, "a", machine.Drain{}); domain.KindOf(err) != domain.KindUnavailable {
		t.Fatalf("a failing log gives %v", err)
	}
	ticks(48)
	w.log.SetFault(nil)
	w.core.Retry()
	if n := ticks(8); n != 0 {
		t.Errorf("%d leases expired for a time in which the log took nothing", n)
	}
	if n := ticks(24); n == 0 {
		t.Error("a machine that stays silent keeps its lease: the test shows nothing")
	}
}

// The guards can fail: if the memory of what was decided is taken away, a repeated offer is recorded as lost work.
func TestRepeatedOfferGuardCanFail(t *testing.T) {
	fenced := func(guard bool) int {
		w := newWorld(t)
		a := w.enrol("a", 1, 10)
		w.submit("r-1", func(s *run.Spec, d *run.Dataset) { d.Samples, s.Round.Chunks = 40, 4 })
		w.until("a offers", func() bool { return a.slots[0].offer != nil })
		w.cast = true // the answer is lost
		w.sync(a)
		if !guard {
			clear(w.core.fold.decided)
		}
		in := Sync{Machine: a.id, Request: a.request()}
		w.core.Step(context.Background(), w.now, []Input{in})
		n := 0
		replayed := New(w.core.cfg, w.log, w.reg)
		replayed.cfg.Replayed = func(es []event.Envelope) {
			for _, e := range es {
				if d, ok := e.Data.(*run.ContributionRefused); ok && d.Why == run.RefusedFenced {
					n++
				}
			}
		}
		w.must(replayed.Open(context.Background(), w.now))
		return n
	}
	if n := fenced(true); n != 0 {
		t.Errorf("a repeated offer of an accepted delta left %d refusals", n)
	}
	if n := fenced(false); n != 1 {
		t.Errorf("without the guard there were %d refusals: the test shows nothing", n)
	}
}

// Open tells a reader every event once, in order, and Step goes on behind it.
func TestReplayedThenCommitted(t *testing.T) {
	w := newWorld(t)
	w.enrol("a", 1, 5)
	w.submit("r-1", nil)
	w.pass(5 * time.Second)
	var seqs []uint64
	c := New(Config{Timing: domain.TimingOf(testLease), Process: "x", Replayed: func(es []event.Envelope) {
		for _, e := range es {
			seqs = append(seqs, e.Seq)
		}
	}}, w.log, w.reg)
	w.must(c.Open(context.Background(), w.now))
	w.log.SetFault(once(memory.FailAfter))
	for _, o := range c.Step(context.Background(), w.now, []Input{Do{Command: "c-z", Actor: "operator",
		Targets: []Target{{Kind: event.KindRun, ID: "r-1", Command: run.Cancel{Reason: "enough"}}}}}) {
		if o, ok := o.(Committed); ok {
			for _, e := range o.Events {
				seqs = append(seqs, e.Seq)
			}
		}
	}
	head, _ := c.Head()
	for i, s := range seqs {
		if s != uint64(i)+1 {
			t.Fatalf("event %d was given out at place %d", s, i+1)
		}
	}
	if uint64(len(seqs)) != head || head == 0 {
		t.Errorf("%d events given out, the log has %d", len(seqs), head)
	}
}

// A batch that was stored although neither answer nor tail could be read is found by the next rebuild, and given out.
func TestUnknownOutcomeIsGivenOutLater(t *testing.T) {
	w := newWorld(t)
	w.enrol("a", 1, 5)
	w.log.SetFault(storedUnheard())
	err := w.do(event.KindMachine, "a", machine.Drain{})
	if domain.KindOf(err) != domain.KindUnavailable {
		t.Fatalf("the caller was told %v", err)
	}
	w.log.SetFault(nil)
	w.now = w.now.Add(time.Second)
	w.step(Tick{})
	if n := len(find[*machine.BecameDraining](w)); n != 1 {
		t.Errorf("the stored event was given out %d times", n)
	}
}

// A machine whose link is closed is suspect after one sync interval, long before silence alone says so; one that has come back is not.
func TestClosedLinkMakesSuspect(t *testing.T) {
	w := newWorld(t)
	a := w.enrol("a", 1, 5)
	timing := domain.TimingOf(testLease)
	after := func(d time.Duration) int {
		w.now = w.now.Add(d)
		w.step(Tick{})
		return len(find[*machine.BecameSuspect](w))
	}
	w.sync(a)
	w.step(Unlinked{Machine: "a"})
	if n := after(timing.Sync / 2); n != 0 {
		t.Error("suspect before it could come back")
	}
	w.sync(a)
	if n := after(timing.Sync); n != 0 {
		t.Error("suspect although it has come back")
	}
	w.step(Unlinked{Machine: "a"})
	if n := after(timing.Sync); n != 1 {
		t.Errorf("suspect %d times one sync interval after its link was closed", n)
	}
	w.step(Unlinked{Machine: "nobody"})
}

// A machine whose revocation was stored although neither answer nor tail could be read is cut off when that is found out.
func TestRevokedIsCutOffLater(t *testing.T) {
	w := newWorld(t)
	w.enrol("a", 1, 5)
	w.log.SetFault(storedUnheard())
	if err := w.do(event.KindMachine, "a", machine.Revoke{Reason: "sold"}); domain.KindOf(err) != domain.KindUnavailable {
		t.Fatalf("the caller was told %v", err)
	}
	w.log.SetFault(nil)
	w.now = w.now.Add(time.Second)
	for _, o := range w.core.Step(context.Background(), w.now, []Input{Tick{}}) {
		if o == (Output(CutOff{Machine: "a"})) {
			return
		}
	}
	t.Error("the revoked machine is not cut off")
}

// storedUnheard stores the next append, and nobody can read that it did.
func storedUnheard() func(memory.Op) memory.Fault {
	failed := false
	return func(op memory.Op) memory.Fault {
		switch {
		case op == memory.OpAppend && !failed:
			failed = true
			return memory.FailAfter
		case failed && (op == memory.OpLast || op == memory.OpRead):
			return memory.FailBefore
		}
		return memory.None
	}
}

func once(f memory.Fault) func(memory.Op) memory.Fault {
	done := false
	return func(op memory.Op) memory.Fault {
		if op != memory.OpAppend || done {
			return memory.None
		}
		done = true
		return f
	}
}

func TestBackoff(t *testing.T) {
	for attempts, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second} {
		if got := backoff(attempts, time.Second, 10*time.Second); got != want {
			t.Errorf("after %d attempts %v, want %v", attempts, got, want)
		}
	}
}

func TestCausesForgetTheOldest(t *testing.T) {
	c := causes{seen: map[domain.CommandID]struct{}{}}
	for i := range maxCauses + 10 {
		c.add(domain.CommandID(fmt.Sprintf("c-%d", i)))
	}
	if len(c.seen) != maxCauses || c.has("c-9") || !c.has("c-10") || !c.has(domain.CommandID(fmt.Sprintf("c-%d", maxCauses+9))) {
		t.Errorf("%d remembered", len(c.seen))
	}
}
