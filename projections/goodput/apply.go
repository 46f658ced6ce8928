package goodput

import (
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// machine folds a machine's fact: who can be given work.
func (l *Ledger) machine(e event.Envelope) {
	id := domain.MachineID(e.Agg)
	slots := 0
	if m := l.machines[id]; m != nil {
		slots = m.Slots
	}
	for i := range slots {
		if a := l.account(domain.Slot(id, i), e.Time); a != nil {
			a.until(e.Time)
		}
	}
	m := machine.Evolve(l.machines[id], e)
	l.machines[id] = m
	for i := range max(slots, m.Slots) {
		a := l.account(domain.Slot(id, i), e.Time)
		if a == nil {
			continue
		}
		switch d := e.Data.(type) {
		case *machine.BecameOnline:
			a.silent = false
			if d.Restarted && a.unit != "" {
				a.broke(e.Time)
			}
		case *machine.BecameSuspect:
			a.hush(lasting(d.Silent))
		}
		l.see(a)
	}
}

// see asks whether the slot may be given work now.
func (l *Ledger) see(a *account) {
	was := a.there
	a.there = workable(l.machines[a.slot.Machine()], a.slot.Index(), a.unit != "")
	if a.there && !was {
		a.owed = 0
		if a.unit == "" {
			a.now = l.rest(a)
		}
	}
}

// workable reports whether a slot can work. One that rests, drains or is in quarantine finishes what it holds.
func workable(m *machine.State, index int, leased bool) bool {
	if m == nil || index < 0 || index >= m.Slots || m.Standing != machine.Online && m.Standing != machine.Suspect {
		return false
	}
	_, paused := m.Pause(index)
	return leased || !paused && !m.Draining && m.Quarantined == ""
}

// other follows the leases of other runs: a slot that holds one could not work for this one.
func (l *Ledger) other(id domain.RunID, e event.Envelope) {
	set := func(slot domain.SlotID, by domain.RunID) {
		if by == "" && l.busy[slot] != id {
			return
		}
		if a := l.account(slot, e.Time); a != nil {
			a.until(e.Time)
			a.elsewhere = by
		}
		if by == "" {
			delete(l.busy, slot)
			return
		}
		l.busy[slot] = by
	}
	switch d := e.Data.(type) {
	case *run.LeaseGranted:
		set(d.Slot, id)
	case *run.LeaseReleased:
		set(d.Slot, "")
	case *run.LeaseExpired:
		set(d.Slot, "")
	case *run.TaskFailed:
		set(d.Slot, "")
	case *run.EvaluationFailed:
		set(d.Slot, "")
	case *run.Completed, *run.Cancelled, *run.Failed:
		for slot := range l.busy { // each is set alone: order does not matter
			set(slot, "")
		}
	}
}

// run folds a fact of the run itself.
func (l *Ledger) run(e event.Envelope) {
	if d, ok := e.Data.(*run.Submitted); ok {
		l.submit(d, e.Time)
		return
	}
	if !l.begun() {
		return
	}
	switch d := e.Data.(type) {
	case *run.Paused:
		l.pause(e.Time, true)
	case *run.Resumed:
		l.pause(e.Time, false)
	case *run.RoundOpened:
		l.round = d.Round
		l.enter(e.Time, Idle)
	case *run.RoundClosed:
		l.enter(e.Time, Merging)
	case *run.RoundMerged:
		l.merged(d, e.Time)
	case *run.Completed, *run.Cancelled, *run.Failed:
		l.all(e.Time, func(*account) {})
		l.ended = e.Time
	default:
		l.slotFact(e)
	}
}

func (l *Ledger) submit(d *run.Submitted, at time.Time) {
	l.spec, l.data, l.submitted = d.Spec, d.Data, at
	for id, m := range l.machines { // each account is made alone: order does not matter
		for i := range m.Slots {
			if !workable(m, i, false) { // its machine's next fact opens its account
				continue
			}
			if a := l.account(domain.Slot(id, i), at); a != nil {
				a.silent = m.Standing == machine.Suspect
				l.see(a)
			}
		}
	}
}

func (l *Ledger) pause(at time.Time, paused bool) {
	l.paused = paused
	l.all(at, l.settle)
}

// settle gives a slot without a lease its place.
func (l *Ledger) settle(a *account) {
	if a.unit == "" {
		a.now, a.unheard = l.rest(a), false
	}
}

// enter takes the run to its next stage. Train leases end with their round, so that no chunk that is told later can eat of what
// is pending.
func (l *Ledger) enter(at time.Time, stage Kind) {
	l.stage = stage
	l.all(at, func(a *account) {
		if a.unit == run.UnitTrain {
			a.leave()
		}
		if stage == Idle {
			a.done = false
		}
		a.flush()
		l.settle(a)
	})
}

func (l *Ledger) merged(d *run.RoundMerged, at time.Time) {
	stage := Opening
	if l.counted >= run.TotalSamples(l.spec, l.data) {
		stage = Finishing
	}
	l.enter(at, stage)
	for _, a := range l.accounts {
		a.forget(d.Round)
	}
}

// slotFact folds a fact that names a slot.
func (l *Ledger) slotFact(e event.Envelope) {
	slot, ok := slotOf(e.Data)
	if !ok {
		return
	}
	a := l.account(slot, e.Time)
	if a == nil {
		return
	}
	at := e.Time
	switch d := e.Data.(type) {
	case *run.LeaseGranted:
		a.become(at, begins(d.Unit, a.fresh))
		a.unit, a.took = d.Unit, true
		if d.Unit == run.UnitTrain {
			a.done = false
		}
	case *run.ChunkTrained:
		a.train(at, d.Chunk, d.Seconds, int64(run.ChunkSamples(l.spec, l.data, d.Chunk)), l.round)
	case *run.ContributionRequested:
		a.become(at, Sending)
	case *run.DeltaAdopted:
		a.adopt(at, d)
	case *run.ContributionAccepted:
		l.counted += d.Samples
		a.become(at, Turning) // the slot starts again from the round's base
		a.count(d.Chunks, d.Samples)
		a.next()
	case *run.ContributionRefused:
		if d.Why != run.RefusedFenced {
			a.become(at, Turning)
			a.next()
		}
	case *run.ContributionCut:
		a.discard(d.Returned...)
		a.discard(d.Others...)
		if d.Keep == 0 {
			a.become(at, Turning)
			a.next()
		}
	case *run.ContributionRevoked:
		l.counted -= d.Samples
		a.revoke(d.Returned, d.Samples)
	case *run.LeaseReleased:
		a.release(at, len(d.Returned) > 0, l.stage == Idle)
		l.settle(a)
	case *run.LeaseExpired, *run.TaskFailed:
		a.broke(at)
		a.leave()
		l.settle(a)
	case *run.EvaluationFailed:
		a.become(at, Idle)
		a.leave()
		l.settle(a)
	}
	l.see(a)
}

// slotOf is the slot that a fact is about.
func slotOf(data event.Data) (domain.SlotID, bool) {
	switch d := data.(type) {
	case *run.LeaseGranted:
		return d.Slot, true
	case *run.LeaseReleased:
		return d.Slot, true
	case *run.LeaseExpired:
		return d.Slot, true
	case *run.TaskFailed:
		return d.Slot, true
	case *run.EvaluationFailed:
		return d.Slot, true
	case *run.ChunkTrained:
		return d.Slot, true
	case *run.ContributionRequested:
		return d.Slot, true
	case *run.ContributionAccepted:
		return d.Slot, true
	case *run.ContributionRefused:
		return d.Slot, true
	case *run.ContributionCut:
		return d.Slot, true
	case *run.ContributionRevoked:
		return d.Slot, true
	case *run.DeltaAdopted:
		return d.Slot, true
	}
	return "", false
}

// begins is what a slot does that gets a lease.
func begins(u run.Unit, fresh bool) Kind {
	switch {
	case u == run.UnitInit:
		return Initialising
	case u == run.UnitEvaluate:
		return Evaluating
	case fresh:
		return Restarting
	}
	return Preparing
}

// adopt takes up what was trained under an ended lease.
func (a *account) adopt(at time.Time, d *run.DeltaAdopted) {
	next := Sending
	if d.Resume {
		next = begins(run.UnitTrain, a.fresh)
	}
	a.become(at, next)
	for _, c := range d.Chunks {
		if w, ok := a.late[c]; ok {
			a.held[c] = w
			delete(a.late, c)
		}
	}
}

// release ends a lease in good order. With chunks in hand the slot was in the midst of one; without, it had been waiting since its
// last delta.
func (a *account) release(at time.Time, returned, open bool) {
	was := a.now
	a.become(at, Idle)
	switch {
	case returned && was.work():
		a.rename(Torn, Between, Preparing)
	case !returned && a.unit == run.UnitTrain:
		a.rename(Stragglers, Turning)
	}
	if a.unit == run.UnitTrain && open {
		a.done = true
	}
	a.leave()
}
