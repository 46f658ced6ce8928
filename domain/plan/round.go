package plan

import (
	"cmp"
	"fmt"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// closing closes a complete round, and one at its deadline with at least half of its chunks counted; below half it
// extends. It reports whether it did either.
func (b *board) closing() bool {
	if !b.open() {
		return false
	}
	o := b.r.Open
	switch {
	case o.Counted == len(o.Chunks), b.overdue() && 2*o.Counted >= len(o.Chunks):
		b.do(run.CloseRound{Round: o.Number})
	case b.overdue() && b.r.Paused == "":
		b.do(run.ExtendRound{Round: o.Number})
	default:
		return false
	}
	return true
}

func (b *board) overdue() bool { return b.r.Open.Deadline > 0 && b.age >= b.r.Open.Deadline }

// initialise has the first base made, by a slot that has not failed at it, the fastest of those.
func (b *board) initialise() {
	if b.r.Base != "" || b.holds(run.UnitInit) {
		return
	}
	if w := b.best(); w != nil {
		b.grantOther(w, run.UnitInit, 0, "the run needs its first weights; "+b.pace(w))
	}
}

// opening opens the next round when somebody could work in it. It reports whether it did.
func (b *board) opening() bool {
	if b.r.Phase != run.PhaseTraining || b.r.Open != nil || b.r.Base == "" || !b.more() {
		return false
	}
	speed, upload := 0.0, 0.0
	for i := range b.workers {
		if w := &b.workers[i]; b.able(w) {
			speed, upload = speed+w.speed, max(upload, w.Upload)
		}
	}
	if speed == 0 {
		return false
	}
	var expected float64
	if b.known {
		expected = min(float64(b.roundChunks())*b.chunk()/speed+upload, run.MaxExpected)
	}
	b.do(run.OpenRound{Expected: expected})
	return true
}

// more reports whether chunks remain for further rounds.
func (b *board) more() bool { return b.r.NextChunk < len(b.r.Chunks) || len(b.r.Carried) > 0 }

// roundChunks is the number of chunks the next round would have.
func (b *board) roundChunks() int { return b.r.NextRound() }

// evaluate gives a wanted evaluation to a slot that training does not need: the deal and the steals come first. While
// the next round waits only to be opened, its slots are not idle.
func (b *board) evaluate() {
	e := b.r.Evaluation
	if e == nil || b.holds(run.UnitEvaluate) {
		return
	}
	if w := b.best(); w != nil {
		b.grantOther(w, run.UnitEvaluate, e.Round, fmt.Sprintf("measures the model of round %d; %s", e.Round, b.pace(w)))
	}
}

// alone reports whether one slot does all the work of this run.
func (b *board) alone() bool {
	n := 0
	for _, w := range b.workers {
		if w.Usable && (w.free || w.mine) {
			n++
		}
	}
	return n == 1
}

func (b *board) holds(u run.Unit) bool {
	for _, l := range b.r.Leases {
		if l.Unit == u {
			return true
		}
	}
	return false
}

// best is the free slot with the fewest task errors, of those the fastest, by benchmarks while no speed is known, of those the first; nil when there is none.
func (b *board) best() *worker {
	free := b.idle()
	if len(free) == 0 {
		return nil
	}
	return slices.MinFunc(free, func(x, y *worker) int {
		return cmp.Or(cmp.Compare(b.r.TaskFails[x.ID], b.r.TaskFails[y.ID]), cmp.Compare(y.Speed, x.Speed), cmp.Compare(y.power, x.power))
	})
}

func (b *board) grantOther(w *worker, u run.Unit, round int, reason string) {
	b.do(run.GrantLease{Slot: w.ID, Unit: u, Round: round, Reason: reason})
	w.free, w.mine = false, true
}

// pace says why w was chosen.
func (b *board) pace(w *worker) string {
	switch {
	case w.Speed == 0 && w.power > 0:
		return fmt.Sprintf("the fastest free slot by benchmark, %s GFLOP/s", domain.Figure(w.power/1e9))
	case w.Speed == 0:
		return "the first free slot, no speed known"
	}
	return fmt.Sprintf("the fastest free slot at %s samples/s", domain.Figure(w.Speed))
}
