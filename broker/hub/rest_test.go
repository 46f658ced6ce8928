package hub

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// Quiet hours and other programs give leases back as a drain does: what was trained is contributed, nothing expires, every sample is
// counted once, and the slot works again when it is over. The reasons are in the log.
func TestAMachineThatRestsLosesNothing(t *testing.T) {
	for cause, reason := range map[machine.Cause]string{machine.ByHours: "quiet hours 08:00-18:00 on its own clock", machine.ByOthers: "another program uses its GPU"} {
		w := newWorld(t)
		a := w.enrol("a", 1, 2)
		w.enrol("b", 1, 2)
		w.submit("r-1", nil)
		w.until("a has trained a chunk", func() bool { l := w.state("r-1").Leases["a/0"]; return l != nil && len(l.Trained) > 0 })
		a.away = map[int]*wire.Away{0: {Cause: cause, Reason: reason}}
		w.until("a holds nothing", func() bool { return w.state("r-1").Leases["a/0"] == nil })
		if !slices.ContainsFunc(find[*run.ContributionAccepted](w), func(c *run.ContributionAccepted) bool { return c.Slot == "a/0" }) {
			t.Errorf("%s: what a had trained is lost\n%s", cause, w.tail(20))
		}
		if p := find[*machine.SlotsPaused](w); len(p) != 1 || p[0].Cause != cause || p[0].Reason != reason {
			t.Errorf("%s: %+v", cause, p)
		}
		a.away = nil
		w.until("the run completes", func() bool { return w.state("r-1").Phase == run.PhaseCompleted })
		if l := w.state("r-1").Ledger(); l.Counted != l.Expected || len(find[*run.LeaseExpired](w)) != 0 {
			t.Errorf("%s: ledger %+v, %d leases expired", cause, l, len(find[*run.LeaseExpired](w)))
		}
		if !w.core.fold.machines["a"].SlotUsable(0) {
			t.Errorf("%s: the slot stays paused", cause)
		}
	}
}

// The owner's rule is told with every reply, once it is a fact; another text for the same hours is none.
func TestTheRuleOfRestIsTold(t *testing.T) {
	w := newWorld(t)
	a := w.enrol("a", 1, 2)
	w.sync(a)
	if a.last.Rest != nil {
		t.Errorf("%+v", a.last.Rest)
	}
	w.must(w.do(event.KindMachine, "a", machine.SetRest{Rest: machine.Rest{Hours: []string{"MON-FRI   08:00-18:00"}, WhileUsed: true}}))
	w.must(w.do(event.KindMachine, "a", machine.SetRest{Rest: machine.Rest{Hours: []string{"mon-fri 08:00-18:00"}, WhileUsed: true}}))
	w.pass(time.Second)
	w.sync(a)
	if r := a.last.Rest; r == nil || !slices.Equal(r.Hours, []string{"mon-fri 08:00-18:00"}) || !r.WhileUsed || len(find[*machine.RestSet](w)) != 1 {
		t.Errorf("%+v, %d facts", r, len(find[*machine.RestSet](w)))
	}
	if err := w.do(event.KindMachine, "a", machine.SetRest{Rest: machine.Rest{Hours: []string{"8-18"}}}); err == nil || !strings.Contains(err.Error(), "no quiet hours") {
		t.Errorf("%v", err)
	}
	w.must(w.do(event.KindMachine, "a", machine.SetRest{}))
	w.sync(a)
	if a.last.Rest != nil {
		t.Errorf("%+v", a.last.Rest)
	}
}
