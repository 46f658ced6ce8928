package hub

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/plan"
	"tensorturn/domain/run"
)

// wanting is a submission that asks for a card of 8 GiB.
func wanting(t *testing.T) run.Submit {
	t.Helper()
	d := run.Dataset{Blob: digest("data"), Samples: 120, Heldout: 20, Features: 4, Classes: 2, Block: 120}
	s, err := run.Resolve(run.Spec{Name: "big", Requirements: &run.Requirements{GPU: &run.GPUNeed{Memory: "8GiB"}}}, d)
	if err != nil {
		t.Fatal(err)
	}
	return run.Submit{Spec: s, Data: d}
}

// A run that fits nowhere is refused with each machine's figures; one that a machine not heard yet may take is not, nor one that shall wait.
func TestARunThatFitsNowhereIsRefused(t *testing.T) {
	w := newWorld(t)
	small, none := w.enrol("small", 1, 1), w.enrol("none", 1, 1)
	small.vitals = &machine.Vitals{GPUs: []machine.GPU{{UUID: "GPU-1", Name: "GTX 1050", Memory: machine.Space{Total: 4 << 30}}}, SlotGPUs: []string{"GPU-1"}}
	w.sync(small)
	w.must(w.do(event.KindRun, "r-0", wanting(t))) // "none" has not told what it has
	none.vitals = &machine.Vitals{Memory: machine.Space{Total: 8 << 30}}
	w.sync(none)
	err := w.do(event.KindRun, "r-1", wanting(t))
	if domain.KindOf(err) != domain.KindConflict || !strings.Contains(err.Error(), "small: its GPU has 4 GiB, the run wants 8 GiB; none: it has no GPU, the run wants a GPU with 8 GiB") &&
		!strings.Contains(err.Error(), "none: it has no GPU, the run wants a GPU with 8 GiB; small: its GPU has 4 GiB, the run wants 8 GiB") {
		t.Errorf("%v", err)
	}
	waits := wanting(t)
	waits.Anyway = true
	w.must(w.do(event.KindRun, "r-2", waits))
	w.must(w.do(event.KindRun, "r-2", wanting(t))) // a repetition is no new wish
	w.pass(3 * time.Second)
	if n := len(find[*run.LeaseGranted](w)); n != 0 {
		t.Errorf("%d leases of runs that fit nowhere", n)
	}
	w.must(w.do(event.KindRun, "r-0", run.Cancel{}))
	big := w.enrol("big", 1, 5)
	big.vitals = &machine.Vitals{GPUs: []machine.GPU{{UUID: "GPU-2", Name: "RTX 4060", Memory: machine.Space{Total: 8188 << 20}}}, SlotGPUs: []string{"GPU-2"}}
	w.until("the machine that came trains", func() bool { return w.state("r-2").Leases["big/0"] != nil })
}

// Why a slot is idle names four runs, and counts the others.
func TestIdleNamesFourRuns(t *testing.T) {
	w := newWorld(t)
	w.sync(w.enrol("a", 1, 1))
	for i := 1; i <= 6; i++ {
		c := wanting(t)
		c.Anyway = true
		c.Spec.Requirements = &run.Requirements{Labels: map[string]string{"site": "moon"}}
		w.must(w.do(event.KindRun, fmt.Sprintf("r-%d", i), c))
		said := func(n int) string {
			var out []string
			for i := 1; i <= n; i++ {
				out = append(out, fmt.Sprintf("r-%d: it has no label site, the run wants site=moon", i))
			}
			return strings.Join(out, "; ")
		}
		want := map[int]string{4: said(4), 5: said(4) + "; and 1 more run", 6: said(4) + "; and 2 more runs"}[i]
		idle := plan.Idle(w.core.snapshot(w.now), "a")
		if want != "" && (len(idle) != 1 || idle[0].Reason != want) {
			t.Errorf("of %d runs: %+v", i, idle)
		}
	}
}

// What a dry step took is believed as far as its machine could have held it: one that tells of more memory than there is must not
// keep the run from everybody.
func TestAStepThatTookMoreThanItsMachineHas(t *testing.T) {
	for took, want := range map[uint64]uint64{6 << 30: 6 << 30, 8<<30 + 1: 0, run.MaxTake: 0} {
		w := newWorld(t)
		a := w.enrol("a", 1, 1)
		a.vitals = &machine.Vitals{Memory: machine.Space{Total: 8 << 30}}
		w.submit("r-1", nil)
		w.until("the first weights are asked for", func() bool { return w.state("r-1").LeaseFor(run.UnitInit) != nil })
		w.sync(a)
		a.slots[0].init = &wire.Init{Base: digest("base", "r-1", 0), Layout: digest("layout"), Params: 100, Take: &run.Memory{Host: took}}
		w.sync(a)
		if s := w.state("r-1"); s.Phase == run.PhaseSubmitted || s.Take.Host != want {
			t.Errorf("%d bytes told: the run is %s and a slot takes %d, want %d", took, s.Phase, s.Take.Host, want)
		}
		w.until("the machine trains", func() bool { return w.state("r-1").TrainLease("a/0") != nil })
	}
}

// An explanation of a run that is only thought of changes nothing, and says the same as one of the run itself.
func TestExplain(t *testing.T) {
	w := newWorld(t)
	a := w.enrol("a", 2, 2)
	b := w.enrol("b", 1, 2)
	w.sync(a)
	w.sync(b)
	w.must(w.do(event.KindMachine, "a", machine.Label{Set: map[string]string{"site": "home"}}))
	c := wanting(t)
	c.Spec.Requirements = &run.Requirements{Labels: map[string]string{"site": "home"}}
	end := len(w.events)
	e, err := w.core.Explain(Wish{Spec: &c.Spec, Data: c.Data}, w.now)
	w.must(err)
	if len(w.events) != end || e.Slots != 2 || e.Run != "" || len(e.Machines) != 2 || e.Machines[1].Slots[0].Role != plan.Out || e.Params == 0 || e.Round.Up == 0 {
		t.Errorf("%+v", e)
	}
	w.must(w.do(event.KindRun, "r-1", c))
	w.until("the run trains", func() bool { return w.state("r-1").TrainLease("a/0") != nil })
	e, err = w.core.Explain(Wish{Run: "r-1"}, w.now)
	w.must(err)
	if e.Slots != 2 || e.Machines[0].Slots[0].Role != plan.Works || e.Machines[1].Slots[0].Reason != "it has no label site, the run wants site=home" {
		t.Errorf("%+v", e)
	}
	if idle := plan.Idle(w.core.snapshot(w.now), "a"); len(idle) != 1 || idle[0].Slot != "a/1" {
		t.Errorf("%+v", idle)
	}
	idle := plan.Idle(w.core.snapshot(w.now), "b")
	if len(idle) != 1 || idle[0].Slot != "b/0" || idle[0].Reason != "r-1: it has no label site, the run wants site=home" {
		t.Errorf("%+v", idle)
	}
	w.until("the run completes", func() bool { return w.state("r-1").Phase == run.PhaseCompleted })
	if _, err := w.core.Explain(Wish{Run: "r-1"}, w.now); domain.KindOf(err) != domain.KindConflict {
		t.Errorf("a run that has ended: %v", err)
	}
	if _, err := w.core.Explain(Wish{Run: "none"}, w.now); domain.KindOf(err) != domain.KindNotFound {
		t.Errorf("no run: %v", err)
	}
}

// Two machines of one name are told apart by their ids where a refusal names them, and a run that names both is told so.
func TestMachinesOfOneNameAreToldApart(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"attic-1", "attic-2"} {
		w.must(w.do(event.KindMachine, id, machine.Enrol{ID: domain.MachineID(id), Name: "attic", NKey: "key-" + id, Account: "account-" + id, Slots: 1, Token: "t-1", At: w.now}))
	}
	for id, m := range w.core.fold.machines {
		if got, want := called(m, id, w.core.named()), fmt.Sprintf("attic (%s)", id); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := w.core.doubles([]string{"nobody", "attic"}); len(got) != 1 || !strings.Contains(got[0], "attic means 2 machines, attic-1, attic-2;") {
		t.Errorf("%q", got)
	}
	if got := w.core.doubles([]string{"attic-1"}); got != nil {
		t.Errorf("of an id: %q", got)
	}
	w.must(w.do(event.KindMachine, "attic-2", machine.Revoke{}))
	if got := called(w.core.fold.machines["attic-1"], "attic-1", w.core.named()); got != "attic" {
		t.Errorf("beside a revoked one: %s", got)
	}
}
