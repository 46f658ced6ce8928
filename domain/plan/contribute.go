package plan

import (
	"fmt"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// Why a slot is asked for its contribution. Each reason begins with one of these.
const (
	reasonNothingLeft = "nothing left"
	reasonLimit       = "limit"
	reasonDrain       = "drain"
	reasonDeadline    = "deadline"
	reasonPaused      = "paused"
)

// contribute asks a slot for what it has trained when it cannot train more before it has sent this.
func (b *board) contribute() {
	for i := range b.workers {
		w := &b.workers[i]
		if !w.train || w.asked || !w.Usable || w.trained+len(w.claimed) == 0 {
			continue
		}
		limit := b.r.Spec.MaxChunksPerContribution
		switch idle := len(w.claimed) == 0; {
		case b.near(b.lead(w)):
			b.ask(w, fmt.Sprintf("%s: %s s of %s s have passed", reasonDeadline, domain.Figure(b.age), domain.Figure(b.r.Open.Deadline)))
		case idle && limit > 0 && w.trained >= limit:
			b.ask(w, fmt.Sprintf("%s: %s in one contribution", reasonLimit, count(w.trained)))
		case idle && w.sealed:
			b.ask(w, fmt.Sprintf("%s: %s trained, and no other may go with them", reasonNothingLeft, count(w.trained)))
		case idle && len(w.shard) > 0:
			b.ask(w, fmt.Sprintf("%s: no further chunk ends before it, %s s of %s s have passed", reasonDeadline, domain.Figure(b.age), domain.Figure(b.r.Open.Deadline)))
		case idle && len(b.pool) == 0:
			b.ask(w, fmt.Sprintf("%s: %s trained, none to take that would end the round sooner", reasonNothingLeft, count(w.trained)))
		}
	}
}

func (b *board) ask(w *worker, reason string) {
	b.do(run.RequestContribution{Slot: w.ID, Reason: reason})
	w.asked = true
}

// near reports whether the round's deadline is less than lead seconds away.
func (b *board) near(lead float64) bool {
	d := b.r.Open.Deadline
	return d > 0 && b.age >= d-lead
}

// lead is how long before the deadline w must begin to send: its upload and two syncs, at most a quarter of the round.
func (b *board) lead(w *worker) float64 {
	return min(w.Upload+2*b.sync, b.r.Open.Deadline/4)
}

// release ends the leases that hold nothing and can get nothing, so that their slots are free for an evaluation or for
// another run.
func (b *board) release() {
	if len(b.pool) > 0 {
		return // it may be theirs in a moment
	}
	for i := range b.workers {
		w := &b.workers[i]
		if w.train && !w.asked && !w.sealed && w.Usable && w.empty() {
			b.do(run.ReleaseLease{Slot: w.ID, Reason: "idle"})
			w.train, w.mine, w.free = false, false, w.index >= 0
		}
	}
}
