package run

import (
	"slices"

	"tensorturn/domain"
)

// copied gives the slot's lease second copies. They stand in the list of copies; the table names the first holder.
func (s *State) copied(d *ChunksCopied) {
	l := s.Leases[d.Slot]
	if l == nil || s.Open == nil {
		return
	}
	l.Claimed = append(l.Claimed, d.Chunks...)
	l.Copying, l.Sealed = d.From, true
	for _, c := range d.Chunks {
		s.Open.Copies[c] = d.Slot
	}
}

// leave takes every chunk out of the lease but the kept ones. Of a chunk with a second copy the other one stays, and is
// the only one from now on. What has no other goes where the fact says.
func (s *State) leave(l *Lease, kept map[domain.ChunkID]bool) {
	if s.Open != nil && len(s.Open.Copies) > 0 {
		for _, c := range slices.Concat(l.Trained, l.Claimed) {
			if !kept[c] {
				s.yield(l.Slot, c)
			}
		}
	}
	keep := func(cs []domain.ChunkID) []domain.ChunkID {
		return slices.DeleteFunc(cs, func(c domain.ChunkID) bool { return !kept[c] })
	}
	l.Trained, l.Claimed = keep(l.Trained), keep(l.Claimed)
	if len(l.Trained) == 0 {
		l.Trained = nil
	}
	if len(l.Claimed) == 0 {
		l.Claimed = nil
	}
}

// yield ends the slot's part in a chunk of which two copies live.
func (s *State) yield(slot domain.SlotID, c domain.ChunkID) {
	copier := s.Open.Copies[c]
	if copier == "" {
		return
	}
	delete(s.Open.Copies, c)
	if copier == slot {
		return
	}
	status := StatusClaimed
	if l := s.Leases[copier]; l != nil && slices.Contains(l.Trained, c) {
		status = StatusTrained
	}
	s.Chunks[c] = Chunk{Status: status, Slot: copier}
}

// overtake takes chunks that slot has counted from whoever holds copies of them. Who has lost a chunk may have it in its
// weights: its contribution takes no further one.
func (s *State) overtake(slot domain.SlotID, counted []domain.ChunkID) {
	if len(s.Open.Copies) == 0 {
		return
	}
	for _, c := range counted {
		o := s.other(slot, c)
		if o == "" {
			continue
		}
		delete(s.Open.Copies, c)
		if l := s.Leases[o]; l != nil {
			l.Trained, l.Claimed = minus(l.Trained, c), minus(l.Claimed, c)
			l.Sealed = true
		}
	}
}

// minus is the list without one chunk, nil when nothing is left.
func minus(cs []domain.ChunkID, c domain.ChunkID) []domain.ChunkID {
	i := slices.Index(cs, c)
	if i < 0 {
		return cs
	}
	if len(cs) == 1 {
		return nil
	}
	return slices.Delete(cs, i, i+1)
}
