package run

import (
	"slices"

	"tensorturn/domain"
)

// LateWork is what a lease held when it ended. Its holder may have trained it, and may not know yet that it is late.
type LateWork struct {
	Epoch  domain.Epoch
	Number int           // of the contribution it was held for; another number of the lease may have begun from another base
	Base   domain.Digest // weights it was trained from
	Chunks []domain.ChunkID
}

// outlive remembers what a lease holds at its end, until the bases have gone on. One for each slot: the newest.
func (s *State) outlive(l *Lease) {
	if l.Unit != UnitTrain || l.empty() || s.Open == nil || s.Phase.Ended() {
		return
	}
	s.Late[l.Slot] = &LateWork{Epoch: l.Epoch, Number: s.Number(l.Slot), Base: s.BaseOf(l), Chunks: slices.Concat(l.Trained, l.Claimed)}
}

// Is reports whether the offered work is of this lease and this contribution. An agent that has not heard that its
// contribution was decided still holds weights of the decided one: for chunks that it was given again, and perhaps on
// another base. A nil receiver is no work.
func (w *LateWork) Is(c AdoptDelta) bool {
	return w != nil && w.Epoch == c.Late && w.Number == c.Number
}

// forget drops late work whose base is neither the present nor the previous one.
func (s *State) forget() {
	for slot, e := range s.Late { // each is judged alone: any order gives the same state
		if e.Base != s.Base && e.Base != s.Previous {
			delete(s.Late, slot)
		}
	}
}

// adopted moves queued chunks into the slot's lease as trained.
func (s *State) adopted(d *DeltaAdopted) {
	delete(s.Late, d.Slot)
	l := s.Leases[d.Slot]
	if l == nil || s.Open == nil {
		return
	}
	byShard := map[domain.SlotID][]domain.ChunkID{}
	for _, c := range d.Chunks {
		slot := s.Chunks[c].Slot
		byShard[slot] = append(byShard[slot], c)
	}
	for slot, cs := range byShard { // lists of different slots: any order gives the same state
		if slot == "" {
			s.Open.Pool = without(s.Open.Pool, cs)
			continue
		}
		s.dequeue(slot, cs)
	}
	s.place(d.Chunks, StatusTrained, d.Slot)
	l.Trained = append(l.Trained, d.Chunks...)
	l.Late = d.Late
	if !d.Resume {
		l.Contribute, l.Sealed = reasonLate, true
	}
	if d.Base != s.Open.Base {
		l.Base = d.Base
	}
}

// empty reports whether the lease holds no chunk.
func (l *Lease) empty() bool { return len(l.Trained)+len(l.Claimed) == 0 }
