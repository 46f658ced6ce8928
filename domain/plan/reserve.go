package plan

import "tensorturn/domain/run"

// reserve takes from the free slots those that this run will want back within the round: the first submitted is the first
// served. Between its rounds and in the tail of one, a slot waits for its run for moments, while another run's lease
// would keep it for a whole round. What the run cannot use goes on to the next run.
func (b *board) reserve(free []bool) {
	keep := b.demand()
	for i := range b.workers {
		w := &b.workers[i]
		if w.mine && w.Usable {
			keep--
		}
		if w.mine && w.index >= 0 {
			free[w.index] = false
		}
	}
	for _, w := range b.idle() {
		if keep > 0 && !b.benched(w) {
			keep--
			free[w.index] = false
		}
	}
}

// demand is how many slots the run could use when its next work begins.
func (b *board) demand() int {
	switch {
	case b.r.Paused != "":
		return 0
	case b.r.Ensemble != nil:
		return b.holding() + b.recalled()
	case b.r.Phase == run.PhaseSubmitted:
		return min(b.r.Spec.Round.Chunks, len(b.r.Chunks))
	case b.r.Phase != run.PhaseTraining:
		return 0
	case !b.more():
		return 0 // the last round: who has nothing to do in it is free
	}
	return b.roundChunks()
}
