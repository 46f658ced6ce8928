package run

import (
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// decideCopy gives a slot without work copies of the last chunks of another slot's lease. The copies are a contribution
// of their own: they would otherwise drag down work that nobody else does when the other slot is accepted first.
func decideCopy(s *State, c Copy) ([]event.Data, error) {
	if err := working(s, c); err != nil {
		return nil, err
	}
	l, err := training(s, c, c.Slot)
	if err != nil {
		return nil, err
	}
	if _, err := training(s, c, c.From); err != nil {
		return nil, err
	}
	copyable := s.Copyable(c.From)
	switch {
	case c.Slot == c.From || c.Count < 1 || !finite(c.Gain):
		return nil, invalid(c, "copies of %d chunks of %s for %s, gain %v", c.Count, c.From, c.Slot, c.Gain)
	case !l.empty() || len(s.ShardOf(c.Slot)) > 0 || l.Contribute != "" || l.Cut != nil:
		return nil, conflict(c, "it has work of its own")
	case c.Count > s.Room(c.Slot):
		return nil, conflict(c, "a contribution holds at most %d chunks", s.Spec.MaxChunksPerContribution)
	case c.Count > len(copyable):
		return nil, conflict(c, "%s wanted, %d have no copy yet", plural(c.Count, "chunk"), len(copyable))
	}
	tail := slices.Clone(copyable[len(copyable)-c.Count:])
	slices.Reverse(tail)
	return one(&ChunksCopied{Slot: c.Slot, Epoch: l.Epoch, From: c.From, Chunks: tail, Gain: c.Gain, Reason: reasonOr(c.Reason, "planned")})
}

// Copyable lists the chunks in the slot's lease of which no second copy lives, in the order in which the slot trains them.
func (s *State) Copyable(slot domain.SlotID) []domain.ChunkID {
	l := s.TrainLease(slot)
	if l == nil || s.Open == nil {
		return nil
	}
	held := slices.Concat(l.Trained, l.Claimed)
	return slices.DeleteFunc(held, func(c domain.ChunkID) bool { return s.Open.Copies[c] != "" })
}

// other is the other slot whose lease holds the chunk too, empty when there is none.
func (s *State) other(slot domain.SlotID, c domain.ChunkID) domain.SlotID {
	if s.Open == nil {
		return ""
	}
	copier := s.Open.Copies[c]
	if copier == slot {
		return s.Chunks[c].Slot
	}
	return copier
}

// Others lists the slots that hold copies of what the slot holds of the chunks, in order.
func (s *State) Others(slot domain.SlotID, cs []domain.ChunkID) []domain.SlotID {
	if s.Open == nil || len(s.Open.Copies) == 0 {
		return nil
	}
	var others []domain.SlotID
	for _, c := range cs {
		if o := s.other(slot, c); o != "" && !slices.Contains(others, o) {
			others = append(others, o)
		}
	}
	slices.Sort(others)
	return others
}

// sole lists those of the chunks that no other lease holds: only they go back to the pool when the slot loses them. The
// leases of the slots in gone end in the same decision, before this one.
func (s *State) sole(slot domain.SlotID, cs []domain.ChunkID, gone map[domain.SlotID]bool) []domain.ChunkID {
	if s.Open == nil || len(s.Open.Copies) == 0 {
		return cs
	}
	var alone []domain.ChunkID
	for _, c := range cs {
		if o := s.other(slot, c); o == "" || gone[o] {
			alone = append(alone, c)
		}
	}
	return alone
}

// inLease reports whether the slot's lease holds the chunk in that state, as the first or as the second copy.
func (s *State) inLease(slot domain.SlotID, c domain.ChunkID, status ChunkStatus) bool {
	if s.holds(slot, c, status) {
		return true
	}
	l := s.Leases[slot]
	if l == nil || s.Open == nil || s.Open.Copies[c] != slot {
		return false
	}
	if status == StatusTrained {
		return slices.Contains(l.Trained, c)
	}
	return slices.Contains(l.Claimed, c)
}

// overtaken gives the facts for the slots that hold copies of chunks which slot is about to count. One that keeps
// something contributes it without them; one that keeps nothing starts again from the base.
func (s *State) overtaken(slot domain.SlotID, counted []domain.ChunkID) []event.Data {
	lost := setOf(counted)
	var facts []event.Data
	for _, o := range s.Others(slot, counted) {
		l := s.Leases[o]
		if len(except(slices.Concat(l.Trained, l.Claimed), lost)) == 0 {
			facts = append(facts, &ContributionCut{Slot: o, Epoch: l.Epoch, Number: s.Number(o), Reason: string(slot) + " was first with all its chunks"})
		}
	}
	return facts
}
