package run

import (
	"slices"

	"tensorturn/domain"
)

// opened puts the round's chunks into its pool. The first round fixes B.
func (s *State) opened(d *RoundOpened) {
	own := len(d.Chunks) - d.Carried
	if s.Budget == 0 {
		s.Budget = own
	}
	s.Open = &OpenRoundState{
		Number: d.Round, Base: d.Base, Chunks: slices.Clone(d.Chunks), Eta: d.Eta, Mu: d.Mu, Deadline: min(d.Deadline, MaxDeadline),
		Shards:      map[domain.SlotID][]domain.ChunkID{},
		Numbers:     map[domain.SlotID]int{},
		NormRefused: map[domain.SlotID]bool{},
		Copies:      map[domain.ChunkID]domain.SlotID{},
	}
	s.NextChunk += own
	s.Carried = without(s.Carried, d.Chunks[:d.Carried])
	if len(s.Carried) == 0 {
		s.Carried = nil
	}
	s.pool(d.Chunks)
}

func (s *State) extended(d *RoundExtended) {
	s.Open.Deadline, s.Open.Stalled = d.Deadline, true
}

// closed ends the work on the round: what is not counted is carried, and no train lease outlives it.
func (s *State) closed(d *RoundClosed) {
	o := s.Open
	for slot, l := range s.Leases { // each is ended alone: any order gives the same state
		if l.Unit == UnitTrain {
			s.end(slot, nil)
		}
	}
	o.Closed, o.Stalled = true, false
	o.Pool = nil
	clear(o.Shards)
	clear(o.Copies)
	s.carry(d.Missing)
	if len(s.Carried) == 0 {
		s.Carried = nil
	}
}

// merged gives the run its next base.
func (s *State) merged(d *RoundMerged) {
	for _, c := range s.Open.Contributions {
		s.place(c.Chunks, StatusMerged, c.Slot)
	}
	s.Increment = ""
	if d.NextBase != s.Base {
		s.Previous, s.Increment = s.Base, d.Increment
	}
	s.Base, s.Momentum, s.Residual = d.NextBase, d.NextMomentum, d.NextResidual
	s.forget()
	s.Merged = d.Round
	s.Open = nil
	if !s.left() {
		s.Phase = PhaseEvaluating
		s.wantFinal()
		return
	}
	if k := s.Spec.EvaluateEvery; k > 0 && s.Merged%k == 0 && s.Evaluation == nil && s.Data.Heldout > 0 {
		s.Evaluation = &Evaluation{Round: s.Merged, Model: s.Base}
	}
}
