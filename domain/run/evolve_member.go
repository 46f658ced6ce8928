package run

import (
	"slices"
	"time"

	"tensorturn/domain/event"
)

// beginMembers makes the members of an ensemble, all waiting. An ensemble needs no first base: each member makes its own.
func (s *State) beginMembers() {
	n := s.Spec.Ensemble.Members
	s.Ensemble = &Ensembling{}
	for k := 1; k <= n; k++ {
		s.Ensemble.Members = append(s.Ensemble.Members, Member{Number: k, Status: MemberWaiting})
	}
	if s.Spec.Ensemble.Single {
		s.Ensemble.Members = append(s.Ensemble.Members, Member{Number: n + 1, Single: true, Status: MemberWaiting})
	}
	s.Phase = PhaseTraining
}

// evolveMember applies a fact of a member and reports whether it was one.
func (s *State) evolveMember(e event.Envelope) bool {
	switch d := e.Data.(type) {
	case *MemberCheckpointed:
		if m := s.Member(d.Member); m != nil {
			s.seen(m, Segment{Slot: d.Slot, Epoch: d.Epoch, From: d.From, To: d.Chunks}, d.Samples)
			m.Checkpoint, m.Loss = d.Blob, d.Loss
			m.Saved++
		}
	case *MemberTrained:
		if m := s.Member(d.Member); m != nil {
			s.seen(m, Segment{Slot: d.Slot, Epoch: d.Epoch, From: d.From, To: d.Chunks}, d.Samples)
			m.Weights, m.Layout, m.Params, m.Loss = d.Weights, d.Layout, d.Params, d.Loss
			m.Checkpoint = d.Weights // what is left to do needs no optimizer state
		}
	case *MemberPredicted:
		if m := s.Member(d.Member); m != nil {
			m.Outputs, m.By, m.Unvoted, m.Status = d.Outputs, d.Slot, d.Why, MemberIn
			m.Fails, m.FailedOn = 0, ""
			delete(s.TaskFails, d.Slot)
			s.voting()
		}
	case *MemberRequeued:
		if m := s.Member(d.Member); m != nil {
			m.Requeued++
		}
	case *MemberDropped:
		if m := s.Member(d.Member); m != nil {
			s.Counted -= d.Samples
			m.Status, m.Reason = MemberGone, d.Reason
			s.voting()
		}
	case *MemberMuted:
		s.evolveMute(d)
	case *Voted:
		if s.Ensemble != nil {
			s.Ensemble.Vote = d
		}
	default:
		return false
	}
	return true
}

// memberLeased notes who trains the member.
func (s *State) memberLeased(d *LeaseGranted, at time.Time) {
	m := s.Member(d.Member)
	if m == nil {
		return
	}
	m.Status, m.Slot = MemberTraining, d.Slot
	if s.Ensemble.Began == 0 {
		s.Ensemble.Began = at.UnixMicro()
	}
}

// seen adds a stretch to the member's lineage. Stretches of one lease are one.
func (s *State) seen(m *Member, g Segment, samples int64) {
	s.Counted += samples - m.Samples
	m.Chunks, m.Samples = g.To, samples
	delete(s.TaskFails, g.Slot)
	m.Fails = 0
	if g.To == g.From {
		return
	}
	if n := len(m.Segments); n > 0 && m.Segments[n-1].Epoch == g.Epoch {
		m.Segments[n-1].To = g.To
		return
	}
	m.Segments = append(m.Segments, g)
}

// voting begins the vote once nothing more comes.
func (s *State) voting() {
	if s.allSettled(0) && len(s.Voters()) > 0 {
		s.Phase = PhaseVoting
	}
}

// memberLedger is the account of an ensemble: every member that was not dropped sees its epochs × N once.
func (s *State) memberLedger() Ledger {
	l := Ledger{Counted: s.Counted}
	for i := range s.Ensemble.Members {
		if m := &s.Ensemble.Members[i]; m.Status != MemberGone {
			l.Expected += TotalSamples(s.MemberSpec(m.Number), s.Data)
		}
	}
	return l
}

func (e *Ensembling) clone() *Ensembling {
	if e == nil {
		return nil
	}
	c := *e
	c.Members = slices.Clone(e.Members)
	for i := range c.Members {
		c.Members[i].Segments = slices.Clone(e.Members[i].Segments)
	}
	return &c
}
