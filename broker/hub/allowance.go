package hub

import (
	"fmt"
	"slices"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
)

// What a machine may have written into the log by its own word alone: labels, the end of a pause, benchmarks, new processes. The log
// is kept for ever, and a machine that says something else in each sync would fill it. What finds no room is not lost: an agent says
// all of it in each sync, and is heard when there is room again.
const (
	factsAtOnce  = 20 // of labels, pauses and benchmarks
	startsAtOnce = 64 // new processes: with one more in allowanceTime, a kill every 5 s is borne for ten minutes
	// allowanceTime is how long it takes until one more is allowed.
	allowanceTime = 10 * time.Second
)

// allowance is a token bucket. The zero value is a full one.
type allowance struct {
	spent time.Duration // what was taken and is not refilled, in the time that its refill takes
	at    time.Time     // when spent was right
}

// take takes n of at most most, or nothing when there are fewer.
func (a *allowance) take(n, most int, now time.Time) bool {
	a.refill(now)
	next := a.spent + time.Duration(n)*allowanceTime
	if next > time.Duration(most)*allowanceTime {
		return false
	}
	a.spent = next
	return true
}

// owe takes n whether they are there or not.
func (a *allowance) owe(n int, now time.Time) {
	a.refill(now)
	a.spent += time.Duration(n) * allowanceTime
}

func (a *allowance) refill(now time.Time) {
	a.spent, a.at = max(0, a.spent-max(0, now.Sub(a.at))), now
}

// allowances are what one machine has used up since this hub process began.
type allowances struct{ facts, starts allowance }

func (m *liveness) allowed(id domain.MachineID) *allowances {
	a := m.allowances[id]
	if a == nil {
		a = &allowances{}
		m.allowances[id] = a
	}
	return a
}

// mayStart refuses a machine whose agent begins anew all the time: each start is written down, and ends leases.
func (b *batch) mayStart(in Sync, m *machine.State) error {
	if m.Incarnation == "" || m.Incarnation == in.Request.Incarnation || b.c.mem.allowed(in.Machine).starts.take(1, startsAtOnce, b.now) {
		return nil
	}
	return domain.Unavailable("sync", fmt.Sprintf("machine %s has had %d new agent processes, and more than one in %v since", in.Machine, startsAtOnce, allowanceTime),
		"see why its agent ends again and again: its log, and tensorturn doctor", nil)
}

// word decides a command that a machine gives about itself, as far as its allowance goes. Pauses are always heard, and paid for by
// what comes after: a slot that cannot work must get none, and is paused once until it is resumed. While the end of a pause waits
// for room, the slot rests and nothing else is recorded of it.
func (b *batch) word(id domain.MachineID, cmd machine.Command) {
	ds, err := machine.Decide(b.c.fold.machines[id], cmd)
	b.refused(err)
	if len(ds) == 0 {
		return
	}
	facts, pauses := &b.c.mem.allowed(id).facts, 0
	for _, d := range ds {
		if isPause(d) {
			pauses++
		}
	}
	if !facts.take(len(ds)-pauses, factsAtOnce, b.now) {
		ds = slices.DeleteFunc(ds, func(d event.Data) bool { return !isPause(d) })
	}
	facts.owe(pauses, b.now)
	b.emitMachine(id, ds)
}

func isPause(d event.Data) bool {
	_, ok := d.(*machine.SlotsPaused)
	return ok
}
