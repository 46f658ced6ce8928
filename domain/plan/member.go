package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// moveGain is the part of a member's remaining time that moving it to another slot must save: a checkpoint has to be
// sent, fetched and loaded, and the speeds are measurements.
const moveGain = 0.25

// ensemble plans a run whose members train alone: who trains which, what is given up at the deadline, and at the end what a
// faster slot should finish.
func (b *board) ensemble() {
	if b.r.Phase != run.PhaseTraining {
		return
	}
	if b.missed() {
		return // everything else depends on what follows
	}
	b.retire()
	if b.r.Paused != "" {
		return
	}
	if b.handOut() {
		b.moveLast()
	}
}

// missed drops what is not in at the run's deadline, the compared single model too. It reports whether it dropped anything. One member is dropped
// at a time: the last allowed one ends the run.
func (b *board) missed() bool {
	d := b.r.Spec.Ensemble.Deadline
	if d == 0 || b.age < d {
		return false
	}
	for i := range b.r.Ensemble.Members {
		if m := &b.r.Ensemble.Members[i]; !m.Settled() {
			b.do(run.DropMember{Member: m.Number, Reason: fmt.Sprintf("deadline: %s s of %s s have passed", domain.Figure(b.age), domain.Figure(d))})
			return true
		}
	}
	return false
}

// retire asks slots that leave, and all of a paused run, to keep their member in the store and give it back.
func (b *board) retire() {
	for i := range b.workers {
		w := &b.workers[i]
		switch {
		case w.member == nil || w.Usable && b.r.Paused == "":
		case w.Quarantined:
			b.let(w, "quarantined")
			w.member = nil
		case w.asked:
		case w.Draining:
			b.ask(w, w.leaving())
		case b.r.Paused != "":
			b.ask(w, reasonPaused)
		}
	}
}

// drawMember copies what the run knows about the slot's member.
func (b *board) drawMember(w *worker, l *run.Lease) {
	m := b.r.Member(l.Member)
	w.member, w.asked = m, l.Contribute != ""
	w.left = b.left(m, w.Done)
}

// left is what m has still to train, in samples; done is how far its slot has come.
func (b *board) left(m *run.Member, done int64) float64 {
	if m.Weights != "" {
		return 0
	}
	total := run.TotalSamples(b.r.MemberSpec(m.Number), b.r.Data)
	return float64(max(total-max(m.Samples, done), 0))
}

// handOut gives each waiting member to the slot that would be done with it first, the longest member first. Where that slot is still busy
// with another one, the member waits for it: a slow slot is not given the last member when a fast one ends it sooner. It
// reports whether no member waits.
func (b *board) handOut() bool {
	var waiting []*run.Member
	for i := range b.r.Ensemble.Members {
		if m := &b.r.Ensemble.Members[i]; m.Status == run.MemberWaiting {
			waiting = append(waiting, m)
		}
	}
	slices.SortStableFunc(waiting, func(x, y *run.Member) int { return cmp.Compare(b.left(y, 0), b.left(x, 0)) })
	ready := make([]float64, len(b.workers))
	for i := range b.workers {
		ready[i] = b.workers[i].left / b.workers[i].speed
	}
	for _, m := range waiting {
		i := b.soonest(m, ready)
		if i < 0 {
			continue
		}
		w := &b.workers[i]
		at := ready[i] + b.left(m, 0)/w.speed
		if ready[i] == 0 && w.free && len(b.r.Leases)+b.granted < run.MaxLeases {
			b.do(run.GrantLease{Slot: w.ID, Unit: run.UnitMember, Member: m.Number, Reason: b.handed(w, m, at)})
			w.free, w.mine, w.member, w.left = false, true, m, b.left(m, 0)
			b.granted++
		}
		ready[i] = at
	}
	return len(waiting) == 0
}

// soonest is the worker that would be done with m first, the first of equals; -1 when nobody can take it.
func (b *board) soonest(m *run.Member, ready []float64) int {
	best, at := -1, math.Inf(1)
	for i := range b.workers {
		w := &b.workers[i]
		if !b.takes(w) || m.FailedOn == w.ID && b.another(w) {
			continue
		}
		if t := ready[i] + b.left(m, 0)/w.speed; t < at {
			best, at = i, t
		}
	}
	return best
}

// takes reports whether w may train a member now or after the one it has.
func (b *board) takes(w *worker) bool {
	return w.Usable && !b.benched(w) && (w.free || w.member != nil && !w.asked)
}

// another reports whether some other slot can take members: one that failed goes there.
func (b *board) another(w *worker) bool {
	for i := range b.workers {
		if o := &b.workers[i]; o != w && b.takes(o) {
			return true
		}
	}
	return false
}

func (b *board) handed(w *worker, m *run.Member, at float64) string {
	what := "to train"
	if m.Checkpoint != "" {
		what = fmt.Sprintf("to go on at chunk %d with", m.Chunks)
	}
	if !b.known {
		return fmt.Sprintf("%s member %d, no speed known", what, m.Number)
	}
	return fmt.Sprintf("%s member %d: done in %s s at %s samples/s, sooner than by any other slot", what, m.Number, domain.Figure(at), domain.Figure(w.speed))
}

// moveLast has the member that would be done last given back, when an idle, faster slot would be done with it so much
// sooner that moving it pays. Only measured speeds count.
func (b *board) moveLast() {
	idle := b.idle()
	for _, t := range idle[min(b.recalled(), len(idle)):] { // the fastest wait for what is on its way
		if t.Speed == 0 || b.benched(t) {
			continue
		}
		v := b.latest(t)
		if v == nil {
			return
		}
		here := v.left / v.speed
		there := v.left/t.speed + v.Upload + t.Upload + 2*b.sync
		if here-there > max(float64(moveGain*here), b.sync) {
			b.ask(v, fmt.Sprintf("moves to %s: done there in %s s, here in %s s", t.ID, domain.Figure(there), domain.Figure(here)))
		}
	}
}

// latest is the slot whose member would be done last, of those slower than t; nil when there is none.
func (b *board) latest(t *worker) *worker {
	var v *worker
	for i := range b.workers {
		w := &b.workers[i]
		if w.member == nil || w.asked || !w.Usable || w.Speed == 0 || w.speed >= t.speed || w.member.FailedOn == t.ID {
			continue
		}
		if v == nil || w.left/w.speed > v.left/v.speed {
			v = w
		}
	}
	return v
}

// recalled is how many members are on their way back to the queue: as many idle slots wait for them.
func (b *board) recalled() int {
	n := 0
	for i := range b.workers {
		if w := &b.workers[i]; w.member != nil && w.asked {
			n++
		}
	}
	return n
}

// holding is how many slots train members.
func (b *board) holding() int {
	n := 0
	for i := range b.workers {
		if b.workers[i].mine && b.workers[i].Usable {
			n++
		}
	}
	return n
}
