package hub

import (
	"strings"
	"testing"
	"time"

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
	idle := plan.Idle(w.core.snapshot(w.now))
	if len(idle) != 2 || idle[1].Slot != "b/0" || idle[1].Reason != "r-1: it has no label site, the run wants site=home" {
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
