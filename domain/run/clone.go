package run

import (
	"maps"
	"slices"

	"tensorturn/domain"
)

// Clone copies the state, so that one may be read while the other evolves. Specs are never changed and are shared.
func (s *State) Clone() *State {
	if s == nil {
		return nil
	}
	c := *s
	c.Chunks = slices.Clone(s.Chunks)
	c.Carried = slices.Clone(s.Carried)
	c.Evaluations = slices.Clone(s.Evaluations) // their figures never change
	c.TaskFails = maps.Clone(s.TaskFails)
	c.Refusals = maps.Clone(s.Refusals)
	c.Ended = maps.Clone(s.Ended)
	c.FencedAt = maps.Clone(s.FencedAt)
	c.Fed = maps.Clone(s.Fed)
	c.Late = make(map[domain.SlotID]*LateWork, len(s.Late))
	for slot, e := range s.Late {
		work := *e
		work.Chunks = slices.Clone(e.Chunks)
		c.Late[slot] = &work
	}
	if s.Evaluation != nil {
		e := *s.Evaluation
		c.Evaluation = &e
	}
	if s.Tally != nil {
		t := *s.Tally
		c.Tally = &t
	}
	c.Leases = make(map[domain.SlotID]*Lease, len(s.Leases))
	for slot, l := range s.Leases {
		c.Leases[slot] = l.clone()
	}
	c.Open = s.Open.clone()
	c.Ensemble = s.Ensemble.clone()
	return &c
}

func (l *Lease) clone() *Lease {
	c := *l
	c.Claimed, c.Trained = slices.Clone(l.Claimed), slices.Clone(l.Trained)
	if l.Cut != nil {
		k := *l.Cut
		c.Cut = &k
	}
	return &c
}

func (o *OpenRoundState) clone() *OpenRoundState {
	if o == nil {
		return nil
	}
	c := *o
	c.Chunks, c.Pool = slices.Clone(o.Chunks), slices.Clone(o.Pool)
	c.Contributions = slices.Clone(o.Contributions) // their chunks never change
	c.Numbers = maps.Clone(o.Numbers)
	c.NormRefused = maps.Clone(o.NormRefused)
	c.Copies = maps.Clone(o.Copies)
	c.Shards = make(map[domain.SlotID][]domain.ChunkID, len(o.Shards))
	for slot, shard := range o.Shards {
		c.Shards[slot] = slices.Clone(shard)
	}
	return &c
}
