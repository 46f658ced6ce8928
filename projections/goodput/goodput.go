// Package goodput tells where the time of a run went: what became of every second in which a slot could have worked for it,
// how much of that trained what was counted (the goodput), and what was lost most. It folds the log alone and decides nothing;
// `tensorturn run goodput` and the fault harness (test/faults) call it.
//
// # What a second is
//
// A slot's seconds are connected ones from the run's submission, or from its machine's coming online, to the run's end, or to the
// machine's being lost, drained or revoked. While a slot is paused, draining or quarantined they count only as long as it
// still holds a lease of this run; while it holds a lease of another run they are told apart (Elsewhere). Slots that never had a lease of
// the run are listed, and are no part of the total.
//
// Times are those of the records, on the hub's clock. A chunk's own seconds are the agent's word: they are taken from the end of the
// time since the slot was last told of, and the rest of that time is booked under the last fact of the slot. Where the
// two clocks differ, the remainder goes to the next chunk, at most maxOwed. All sums are whole nanoseconds: the kinds of a slot
// sum to its connected time exactly, in whatever order they are added.
//
// # What the log cannot tell
//
//   - that the hub was away: nobody wrote it down, so it is booked as what the slot did last, or as silence. A harness that
//     has seen it says so (Absence).
//   - when a machine died: silence begins where the hub last heard of it, as machine.suspect says, and is connected until the
//     machine is lost. A trainer that hangs looks like one that trains until its lease expires.
//   - how long a chunk took that was trained out of contact and adopted later: it counts in samples, not in seconds. A
//     slot's efficiency may pass 1 by it.
//   - what a member of an ensemble trained: its chunks are no facts. Such a run is refused.
package goodput

import (
	"slices"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// maxSlots bounds the accounts of one run: a pool at its limit.
const maxSlots = domain.MaxMachines * domain.MaxSlotsPerMachine

// Absence is time that only an observer knows of: a machine was away, or the hub where Machine is empty.
type Absence struct {
	Machine  domain.MachineID
	From, To time.Time // a zero To has not ended
}

// Ledger folds one run. Events must come in the order of the log, from its beginning.
type Ledger struct {
	id       domain.RunID
	from, to time.Time // the window, zero for all
	moments  []moment  // of absences, in order, not yet played

	machines map[domain.MachineID]*machine.State
	busy     map[domain.SlotID]domain.RunID // leases of other runs
	accounts map[domain.SlotID]*account     // each is booked alone: the order in which they are walked changes nothing
	full     bool

	spec      run.Spec
	data      run.Dataset
	submitted time.Time
	ended     time.Time // zero while the run goes on
	newest    time.Time
	counted   int64
	stage     Kind // what a slot without a lease waits for; Idle while a round is open
	round     int
	paused    bool
}

// New begins the ledger of a run. The absences are those that the log does not know.
func New(id domain.RunID, absences ...Absence) *Ledger {
	return &Ledger{id: id, moments: momentsOf(absences), machines: map[domain.MachineID]*machine.State{}, busy: map[domain.SlotID]domain.RunID{},
		accounts: map[domain.SlotID]*account{}, stage: Initialising}
}

// Within narrows the ledger to a window of time; it must be called before the first event. Events behind it are not read.
func (l *Ledger) Within(from, to time.Time) { l.from, l.to = from, to }

// Apply folds one event.
func (l *Ledger) Apply(e event.Envelope) {
	if l.over() || !l.to.IsZero() && e.Time.After(l.to) {
		return
	}
	e.Time = later(e.Time, l.newest) // the hub's clock may have been set back: that time is nobody's
	l.newest = e.Time
	l.play(e.Time)
	switch {
	case e.Kind == event.KindMachine:
		l.machine(e)
	case e.Kind == event.KindRun && domain.RunID(e.Agg) == l.id:
		l.run(e)
	case e.Kind == event.KindRun:
		l.other(domain.RunID(e.Agg), e)
	}
}

// over reports whether the run has ended.
func (l *Ledger) over() bool { return !l.ended.IsZero() }

// begun reports whether the run is submitted: there are no accounts before.
func (l *Ledger) begun() bool { return !l.submitted.IsZero() }

// account gives the account of a slot, nil before the run is submitted.
func (l *Ledger) account(slot domain.SlotID, at time.Time) *account {
	a := l.accounts[slot]
	if a != nil || !l.begun() {
		return a
	}
	if len(l.accounts) >= maxSlots {
		l.full = true
		return nil
	}
	if at.Before(l.from) {
		at = l.from
	}
	a = newAccount(slot, at)
	a.elsewhere = l.busy[slot]
	a.now = l.rest(a)
	l.accounts[slot] = a
	return a
}

// all books every account up to the time, and then does something to it.
func (l *Ledger) all(at time.Time, do func(*account)) {
	for _, a := range l.accounts {
		a.until(at)
		do(a)
	}
}

// rest is what a slot without a lease does.
func (l *Ledger) rest(a *account) Kind {
	switch {
	case l.paused:
		return Paused
	case l.stage != Idle:
		return l.stage
	case a.done:
		return Stragglers
	case a.fresh:
		return Restarting
	}
	return Idle
}

// moment is the begin or the end of an absence.
type moment struct {
	at   time.Time
	who  domain.MachineID // empty: the hub
	away bool
}

func momentsOf(absences []Absence) []moment {
	var out []moment
	for _, a := range absences {
		out = append(out, moment{a.From, a.Machine, true})
		if !a.To.IsZero() {
			out = append(out, moment{a.To, a.Machine, false})
		}
	}
	slices.SortStableFunc(out, func(x, y moment) int { return x.at.Compare(y.at) })
	return out
}

// play plays the absences before the time. Those before the run are not heard.
func (l *Ledger) play(before time.Time) {
	for len(l.moments) > 0 && l.moments[0].at.Before(before) {
		m := l.moments[0]
		l.moments = l.moments[1:]
		for slot, a := range l.accounts {
			switch {
			case m.who == "":
				a.hub(m.at, m.away)
			case m.who == slot.Machine() && m.away:
				a.broke(m.at)
				l.settle(a)
				a.gone = true
			case m.who == slot.Machine():
				a.until(m.at)
				a.gone = false
			}
		}
	}
}
