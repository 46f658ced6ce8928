package hub

import (
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// mergedRound is what one merge left in the store.
type mergedRound struct {
	Round        int
	Base         domain.Digest // before the merge
	Momentum     domain.Digest // before the merge, empty in the first round
	NextBase     domain.Digest
	NextMomentum domain.Digest
	Residual     domain.Digest // after the merge, of a coded way down
	Increment    domain.Digest
	Deltas       []domain.Digest
}

func mergedRoundOf(d *run.RoundMerged) mergedRound {
	m := mergedRound{Round: d.Round, Base: d.Base, Momentum: d.Momentum, NextBase: d.NextBase, NextMomentum: d.NextMomentum,
		Residual: d.NextResidual, Increment: d.Increment}
	for _, in := range d.Inputs {
		m.Deltas = append(m.Deltas, in.Blob)
	}
	return m
}

// keepLast is how many of the newest rounds keep base and momentum whatever the run's keep_every says: a merge under
// way, an evaluation of the round before, and one to step back to.
const keepLast = 3

// References lists the blobs (manifest digests) that must stay, in the order of runs and rounds; one may come twice.
//
// Of every run: its data set, its first base, its present base and momentum, base and momentum after every keep_every-th
// round and the last keepLast (with the residual of a coded way down), all increments and all accepted deltas: from a kept base the deltas that follow it give every base
// between again, bit for bit. A run that failed or was cancelled keeps its data set, the present base and momentum. Of
// an ensemble: the newest checkpoints of members under way, weights and outputs of those that are in. Of live runs also: offers under inspection, and what an evaluation reads.
func (c *Core) References() []domain.Digest {
	var out []domain.Digest
	add := func(ds ...domain.Digest) {
		for _, d := range ds {
			if d != "" {
				out = append(out, d)
			}
		}
	}
	for _, id := range c.fold.runOrder {
		s := c.fold.runs[id]
		add(s.Data.Blob, s.Base, s.Momentum, s.Residual, s.Increment)
		add(memberBlobs(s)...)
		if s.Phase == run.PhaseFailed || s.Phase == run.PhaseCancelled {
			continue
		}
		for i, m := range c.fold.merged[id] {
			if i == 0 {
				add(m.Base)
			}
			if kept(s, m.Round) {
				add(m.NextBase, m.NextMomentum, m.Residual)
			}
			add(m.Increment)
			add(m.Deltas...)
		}
		if s.Open != nil {
			add(s.Open.Base)
			for _, k := range s.Open.Contributions {
				add(k.Blob)
			}
		}
		if s.Evaluation != nil {
			add(s.Evaluation.Model)
		}
	}
	add(c.fold.deployed()...)
	for _, o := range c.mem.inspect {
		add(o.job.Offer.Blob)
	}
	for d := range c.mem.wanted {
		add(d)
	}
	return out
}

// kept reports whether the weights and momentum after a round stay.
func kept(s *run.State, round int) bool {
	every := max(s.Spec.KeepEvery, 1)
	return round%every == 0 || round > s.Merged-keepLast
}
