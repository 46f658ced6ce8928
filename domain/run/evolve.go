package run

import (
	"fmt"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Evolve applies a fact and returns the state, which it changes in place; s is nil before Submitted. It judges nothing:
// history is true. A fact of another kind of aggregate is a broken promise of the caller.
func Evolve(s *State, e event.Envelope) *State {
	if s == nil {
		d, ok := e.Data.(*Submitted)
		domain.Assert(ok, fmt.Sprintf("a run begins with %s, not with %T", NameSubmitted, e.Data))
		s = begin(domain.RunID(e.Agg), d)
		s.Seq = e.Seq
		return s
	}
	s.Seq = e.Seq
	switch d := e.Data.(type) {
	case *Submitted: // a run has one beginning
	case *Paused:
		s.Paused, s.Gate = d.Reason, d.Gate
	case *Resumed:
		s.resumed()
	case *Cancelled:
		s.over(PhaseCancelled, d.Reason)
	case *Failed:
		s.over(PhaseFailed, d.Reason)
	case *Completed:
		s.Evaluation = nil
		s.over(PhaseCompleted, s.Reason)
	case *Initialised:
		s.Phase, s.Base, s.Layout, s.Params = PhaseTraining, d.Base, d.Layout, d.Params
		if d.Take != nil {
			s.Take = *d.Take
		}
	case *LeaseGranted:
		s.Leases[d.Slot] = &Lease{Slot: d.Slot, Epoch: domain.Epoch(e.Seq), Unit: d.Unit, Round: d.Round, Member: d.Member}
		s.memberLeased(d, e.Time)
	case *LeaseReleased:
		s.end(d.Slot, d.Returned)
	case *LeaseExpired:
		s.end(d.Slot, d.Requeued)
	case *TaskFailed:
		s.taskFailed(d)
	case *RoundOpened:
		s.opened(d)
	case *ShardAssigned:
		s.assigned(d)
	case *ShardReturned:
		s.shardReturned(d)
	case *ChunksStolen:
		s.stolen(d)
	case *ChunksClaimed:
		s.claimed(d)
	case *ChunkTrained:
		s.trained(d)
	case *ContributionRequested:
		s.requested(d)
	case *ContributionAccepted:
		s.accepted(d)
	case *ContributionRefused:
		s.refused(d)
	case *ContributionCut:
		s.cut(d)
	case *ContributionRevoked:
		s.revoked(d)
	case *RoundExtended:
		s.extended(d)
	case *RoundClosed:
		s.closed(d)
	case *RoundMerged:
		s.merged(d)
	case *Evaluated:
		s.evaluated(d)
	case *EvaluationFailed:
		s.evaluationFailed(d)
	case *ChunksCopied:
		s.copied(d)
	case *DeltaAdopted:
		s.adopted(d)
	default:
		if s.evolveMember(e) {
			break
		}
		panic(fmt.Sprintf("broken promise: run.Evolve knows every fact of a run, but not %T", e.Data))
	}
	return s
}

// begin is the state after Submitted.
func begin(id domain.RunID, d *Submitted) *State {
	s := &State{
		ID: id, Phase: PhaseSubmitted, Spec: d.Spec, Data: d.Data,
		Leases:    map[domain.SlotID]*Lease{},
		TaskFails: map[domain.SlotID]int{},
		Refusals:  map[domain.MachineID]int{},
		Ended:     map[domain.SlotID]domain.Epoch{},
		FencedAt:  map[domain.SlotID]domain.Epoch{},
		Late:      map[domain.SlotID]*LateWork{},
	}
	if d.Spec.IsEnsemble() {
		s.beginMembers()
	} else {
		s.Chunks = make([]Chunk, TotalChunks(d.Spec, d.Data))
	}
	return s
}

// resumed ends a pause. When the norm gate had stopped the run, its owner has looked: the gate learns anew what is
// usual, since it would otherwise stop the run again at the next delta.
func (s *State) resumed() {
	if s.Gate {
		s.NormAverage, s.NormPeak = 0, 0
		if s.Open != nil {
			clear(s.Open.NormRefused)
		}
	}
	s.Paused, s.Gate = "", false
}
