package run

import (
	"tensorturn/domain"
)

// end takes the slot's lease away; everything it held goes back.
func (s *State) end(slot domain.SlotID, returned []domain.ChunkID) {
	l := s.Leases[slot]
	if l == nil {
		return
	}
	s.outlive(l)
	s.leave(l, nil)
	delete(s.Leases, slot)
	s.Ended[slot] = l.Epoch
	if m := s.Member(l.Member); m != nil && m.Slot == slot {
		m.Slot = ""
		if m.Status == MemberTraining {
			m.Status = MemberWaiting
		}
	}
	if l.Unit == UnitEvaluate {
		s.wantFinal() // an old model's measurement gives way to the final one
	}
	if s.Open != nil {
		delete(s.Open.Shards, slot)
		s.pool(returned)
	}
}

// pool puts chunks at the pool's end, in their order.
func (s *State) pool(cs []domain.ChunkID) {
	if len(cs) == 0 {
		return
	}
	for _, c := range cs {
		s.Chunks[c] = Chunk{Status: StatusQueued}
	}
	s.Open.Pool = append(s.Open.Pool, cs...)
}

// taskFailed counts the trainer's error and ends the lease. A slot that failed at the first base has failed: the planner
// tries another one next, since one machine without torch must not end what the others can do.
func (s *State) taskFailed(d *TaskFailed) {
	switch d.Unit {
	case UnitInit:
		s.InitFails = d.Count
		s.TaskFails[d.Slot]++
	case UnitMember:
		s.TaskFails[d.Slot]++
		if l := s.Leases[d.Slot]; l != nil && s.Member(l.Member) != nil {
			m := s.Member(l.Member)
			m.Fails, m.FailedOn = d.Count, d.Slot
		}
	default:
		s.TaskFails[d.Slot] = d.Count
	}
	s.end(d.Slot, d.Returned)
}

// evaluated keeps the result. The lease ends with a fact of its own.
func (s *State) evaluated(d *Evaluated) {
	if n := len(s.Evaluations); n >= MaxEvaluationsKept {
		s.Evaluations = append(s.Evaluations[:0], s.Evaluations[n-MaxEvaluationsKept+1:]...)
	}
	s.Evaluations = append(s.Evaluations, *d)
	s.Evaluation = nil
	s.wantFinal()
}

// evaluationFailed counts the attempt and ends its lease.
func (s *State) evaluationFailed(d *EvaluationFailed) {
	e := s.Evaluation
	s.end(d.Slot, nil)
	if e == nil || e != s.Evaluation { // an old model's measurement has just given way
		return
	}
	e.Failures = d.Count
	if d.GaveUp {
		s.Evaluation = nil
	}
}

// wantFinal asks for the final evaluation once everything is trained, unless an earlier model is still being measured.
// A measurement that nobody has begun gives way.
func (s *State) wantFinal() {
	if s.Phase != PhaseEvaluating || s.Data.Heldout == 0 {
		return
	}
	if s.Evaluation != nil && (s.Evaluation.Final || s.LeaseFor(UnitEvaluate) != nil) {
		return
	}
	if n := len(s.Evaluations); n > 0 && s.Evaluations[n-1].Round == s.Merged {
		return
	}
	s.Evaluation = &Evaluation{Round: s.Merged, Model: s.Base, Final: true}
}
