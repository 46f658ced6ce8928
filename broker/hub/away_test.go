package hub

import (
	"strings"
	"testing"
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// A GPU that disappears takes its slot alone: the other trains on, every sample is counted, and the slot works again when it is back.
func TestAGoneGPUTakesOnlyItsSlot(t *testing.T) {
	w := newWorld(t)
	a := w.enrol("a", 2, 2)
	w.submit("r-1", nil)
	w.until("both slots train", func() bool { return len(w.state("r-1").Leases) == 2 })
	a.away = map[int]*wire.Away{1: {Cause: machine.ByAbsence, Reason: "its GPU is gone: lost"}}
	w.until("the slot has given back what it held", func() bool { return w.state("r-1").Leases["a/1"] == nil })
	seq := len(w.events)
	w.pass(3 * time.Second)
	if !w.core.fold.machines["a"].SlotUsable(0) || w.core.fold.machines["a"].SlotUsable(1) {
		t.Error("the wrong slot is paused")
	}
	for _, e := range w.events[seq:] {
		if g, ok := e.Data.(*run.LeaseGranted); ok && g.Slot == "a/1" {
			t.Errorf("a paused slot was given a lease: %+v", g)
		}
	}
	w.until("the run completes", func() bool { return w.state("r-1").Phase == run.PhaseCompleted })
	if l := w.state("r-1").Ledger(); l.Counted != l.Expected {
		t.Errorf("ledger %+v", l)
	}
	a.away = nil
	w.pass(2 * time.Second)
	if n := len(find[*machine.SlotsPaused](w)); n != 1 || !w.core.fold.machines["a"].SlotUsable(1) {
		t.Errorf("%d pauses; the slot is usable: %v", n, w.core.fold.machines["a"].SlotUsable(1))
	}
}

// A trainer that fails because its GPU is gone is no fault of the run's; without that word it is one.
func TestAFailureOfAGoneGPUIsNoTaskError(t *testing.T) {
	for _, gone := range []bool{true, false} {
		w := newWorld(t)
		a := w.enrol("a", 2, 2)
		w.submit("r-1", nil)
		w.until("both slots train", func() bool { return len(w.state("r-1").Leases) == 2 })
		if gone {
			a.away = map[int]*wire.Away{1: {Cause: machine.ByAbsence, Reason: "lost"}}
		}
		a.slots[1].err = "CUDA error: device lost"
		w.sync(a)
		if n := len(find[*run.TaskFailed](w)); n == 0 != gone {
			t.Errorf("gone %v: %d task errors", gone, n)
		}
		if gone && w.state("r-1").Leases["a/1"] != nil {
			t.Errorf("gone %v: the lease is still held", gone)
		}
	}
}

// The owner's pause drains without loss: what was trained is contributed first.
func TestAPausedMachineContributesFirst(t *testing.T) {
	w := newWorld(t)
	w.enrol("a", 1, 2)
	w.enrol("b", 1, 2)
	w.submit("r-1", nil)
	w.until("a has trained a chunk", func() bool { l := w.state("r-1").Leases["a/0"]; return l != nil && len(l.Trained) > 0 })
	w.must(w.do(event.KindMachine, "a", machine.Pause{Reason: "a game"}))
	w.until("a holds nothing", func() bool { return w.state("r-1").Leases["a/0"] == nil })
	contributed := false
	for _, c := range find[*run.ContributionAccepted](w) {
		contributed = contributed || c.Slot == "a/0"
	}
	asked := false
	for _, c := range find[*run.ContributionRequested](w) {
		asked = asked || c.Slot == "a/0" && strings.Contains(c.Reason, "a game")
	}
	if !contributed || !asked {
		t.Errorf("contributed %v, asked with the owner's reason %v\n%s", contributed, asked, w.tail(30))
	}
	if n := len(find[*run.LeaseExpired](w)); n != 0 {
		t.Errorf("%d leases expired", n)
	}
	w.until("the run completes without a", func() bool { return w.state("r-1").Phase == run.PhaseCompleted })
}
