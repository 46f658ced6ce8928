package hub

import (
	"maps"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// RunState gives a copy of a run's state that shares nothing that changes. It copies the whole table of chunks: it is
// for tests, simulators and rare questions; pages are answered from projections.
func (c *Core) RunState(id domain.RunID) (*run.State, bool) {
	s, ok := c.fold.runs[id]
	if !ok {
		return nil, false
	}
	return copyRun(s), true
}

// copyRun copies what Evolve changes in place. The specification is never changed and stays shared.
func copyRun(s *run.State) *run.State {
	c := *s
	c.Chunks, c.Carried = slices.Clone(s.Chunks), slices.Clone(s.Carried)
	c.Evaluations = slices.Clone(s.Evaluations)
	c.TaskFails, c.Refusals = maps.Clone(s.TaskFails), maps.Clone(s.Refusals)
	c.Ended, c.FencedAt = maps.Clone(s.Ended), maps.Clone(s.FencedAt)
	if s.Evaluation != nil {
		e := *s.Evaluation
		c.Evaluation = &e
	}
	if s.Leases != nil {
		c.Leases = make(map[domain.SlotID]*run.Lease, len(s.Leases))
	}
	for slot, l := range s.Leases {
		c.Leases[slot] = copyLease(l)
	}
	c.Open = copyRound(s.Open)
	return &c
}

func copyLease(l *run.Lease) *run.Lease {
	c := *l
	c.Claimed, c.Trained = slices.Clone(l.Claimed), slices.Clone(l.Trained)
	if l.Cut != nil {
		keep := *l.Cut
		c.Cut = &keep
	}
	return &c
}

func copyRound(o *run.OpenRoundState) *run.OpenRoundState {
	if o == nil {
		return nil
	}
	c := *o
	c.Chunks, c.Pool = slices.Clone(o.Chunks), slices.Clone(o.Pool)
	c.Numbers, c.NormRefused = maps.Clone(o.Numbers), maps.Clone(o.NormRefused)
	c.Contributions = slices.Clone(o.Contributions)
	for i := range c.Contributions {
		c.Contributions[i].Chunks = slices.Clone(o.Contributions[i].Chunks)
	}
	if o.Shards != nil {
		c.Shards = make(map[domain.SlotID][]domain.ChunkID, len(o.Shards))
	}
	for slot, chunks := range o.Shards {
		c.Shards[slot] = slices.Clone(chunks)
	}
	return &c
}
