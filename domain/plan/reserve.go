package plan

import (
	"cmp"
	"slices"

	"tensorturn/domain/run"
)

// reserve takes from the free slots those that this run will want back within the round: the first submitted is the first
// served. Between its rounds and in the tail of one, a slot waits for its run for moments, while another run's lease
// would keep it for a whole round. What the run cannot use goes on to the next run.
func (b *board) reserve(free []bool) {
	keep := b.demand()
	var idle []*worker
	for i := range b.workers {
		w := &b.workers[i]
		switch {
		case w.mine && w.Usable:
			keep--
		case w.free && !b.benched(w):
			idle = append(idle, w)
		}
		if w.mine && w.index >= 0 {
			free[w.index] = false
		}
	}
	// The fastest stay, the first of equals.
	slices.SortStableFunc(idle, func(x, y *worker) int { return cmp.Compare(y.speed, x.speed) })
	for _, w := range idle[:min(max(keep, 0), len(idle))] {
		free[w.index] = false
	}
}

// demand is how many slots the run could use when its next work begins.
func (b *board) demand() int {
	switch {
	case b.r.Paused != "":
		return 0
	case b.r.Phase == run.PhaseSubmitted:
		return min(b.r.Spec.Round.Chunks, len(b.r.Chunks))
	case b.r.Phase != run.PhaseTraining:
		return 0
	case b.r.Open != nil && !b.more() && (b.open() || b.r.Open.Counted == len(b.r.Open.Chunks)):
		return 0 // the last round: who has nothing to do in it is free
	case b.r.Open != nil && b.r.Open.Closed:
		return b.roundChunks() + len(b.r.Open.Chunks) - b.r.Open.Counted
	}
	return b.roundChunks()
}
