package run

import (
	"cmp"
	"maps"
	"slices"

	"tensorturn/domain"
)

// The questions below change nothing. Lists they return belong to the state: read them, do not keep or change them.

// LeaseOf is the lease the slot holds, nil when none.
func (s *State) LeaseOf(slot domain.SlotID) *Lease { return s.Leases[slot] }

// TrainLease is the slot's lease on the open round, nil when it has none.
func (s *State) TrainLease(slot domain.SlotID) *Lease {
	if l := s.Leases[slot]; l != nil && l.Unit == UnitTrain {
		return l
	}
	return nil
}

// Slots lists the slots that hold a lease, in order.
func (s *State) Slots() []domain.SlotID { return slices.Sorted(maps.Keys(s.Leases)) }

// LeaseFor is the lease of the only unit of its kind (init or evaluate), nil when nobody holds it.
func (s *State) LeaseFor(u Unit) *Lease {
	for _, l := range s.Leases {
		if l.Unit == u { // at most one, so that the map's order does not show
			return l
		}
	}
	return nil
}

// ShardOf lists the chunks queued for the slot, head first.
func (s *State) ShardOf(slot domain.SlotID) []domain.ChunkID {
	if s.Open == nil {
		return nil
	}
	return s.Open.Shards[slot]
}

// Held lists what the slot would give back if it vanished: its trained chunks, its claimed ones, its shard. Chunks of
// which another slot has a copy stay with that one.
func (s *State) Held(slot domain.SlotID) []domain.ChunkID { return s.heldBut(slot, nil) }

// heldBut is Held when the leases of gone have ended just before.
func (s *State) heldBut(slot domain.SlotID, gone map[domain.SlotID]bool) []domain.ChunkID {
	var held []domain.ChunkID
	if l := s.Leases[slot]; l != nil {
		held = s.sole(slot, slices.Concat(l.Trained, l.Claimed), gone)
	}
	return append(held, s.ShardOf(slot)...)
}

// Holding lists the slots of the machine that hold a lease, in order.
func (s *State) Holding(m domain.MachineID) []domain.SlotID {
	var slots []domain.SlotID
	for _, slot := range s.Slots() {
		if slot.Machine() == m {
			slots = append(slots, slot)
		}
	}
	return slots
}

// Samples is the number of samples in the chunks.
func (s *State) Samples(cs []domain.ChunkID) int64 { return gridOf(&s.Spec, &s.Data).sum(cs) }

// RemainingSamples is what the slot has still to train: its claimed chunks and its shard.
func (s *State) RemainingSamples(slot domain.SlotID) int64 {
	sum := s.Samples(s.ShardOf(slot))
	if l := s.Leases[slot]; l != nil {
		sum += s.Samples(l.Claimed)
	}
	return sum
}

// Number is the slot's present contribution in the open round, from 1; 0 when no round is open. It grows when one is
// accepted, refused or cut to nothing: the slot then starts again from the round's base.
func (s *State) Number(slot domain.SlotID) int {
	if s.Open == nil {
		return 0
	}
	return s.Open.Numbers[slot] + 1
}

// Room is how many more chunks the slot may claim for its present contribution, before its shard is looked at.
func (s *State) Room(slot domain.SlotID) int {
	l := s.TrainLease(slot)
	if l == nil || l.Contribute != "" || l.Cut != nil || l.Sealed {
		return 0
	}
	if s.Spec.MaxChunksPerContribution == 0 {
		return MaxRoundChunks
	}
	return max(s.Spec.MaxChunksPerContribution-len(l.Claimed)-len(l.Trained), 0)
}

// WantsInit reports whether the run waits for its first base and nobody makes it.
func (s *State) WantsInit() bool {
	return s.Phase == PhaseSubmitted && s.Paused == "" && s.LeaseFor(UnitInit) == nil
}

// WantsRound reports whether a round can be opened.
func (s *State) WantsRound() bool {
	return s.Phase == PhaseTraining && s.Paused == "" && s.Open == nil && s.left()
}

// WantsEvaluation reports whether a model waits to be measured and nobody measures it.
func (s *State) WantsEvaluation() bool {
	return s.Evaluation != nil && s.Paused == "" && !s.Phase.Ended() && s.LeaseFor(UnitEvaluate) == nil
}

// left reports whether chunks remain that no open round owns.
func (s *State) left() bool { return s.NextChunk < len(s.Chunks) || len(s.Carried) > 0 }

// NeedsMerge gives what the closed round's merge reads, ordered by (slot, number), and whether it waits for it.
func (s *State) NeedsMerge() ([]MergeInput, bool) {
	if s.Open == nil || !s.Open.Closed || s.Phase.Ended() {
		return nil, false
	}
	return s.inputs(), true
}

// inputs lists the open round's accepted contributions in the merge's order.
func (s *State) inputs() []MergeInput {
	ins := make([]MergeInput, len(s.Open.Contributions))
	for i, c := range s.Open.Contributions {
		ins[i] = MergeInput{Slot: c.Slot, Number: c.Number, Blob: c.Blob, Codec: c.Codec, Samples: c.Samples, Base: c.Base}
	}
	slices.SortFunc(ins, func(a, b MergeInput) int {
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Number, b.Number))
	})
	return ins
}

// Ledger is the run's account of samples.
type Ledger struct {
	Expected int64 // epochs × N
	Counted  int64 // by accepted contributions, revoked ones taken out
}

// Ledger gives the account.
func (s *State) Ledger() Ledger {
	if s.Ensemble != nil {
		return s.memberLedger()
	}
	return Ledger{Expected: TotalSamples(s.Spec, s.Data), Counted: s.Counted}
}

// Done reports whether the run has ended.
func (s *State) Done() bool { return s.Phase.Ended() }

// NormLimit is the norm gate's limit on norm/√steps, 0 when it is not in force: it judges from the fourth merge on,
// and not before a contribution has been accepted since the owner last resumed a run that it had stopped.
//
// It never falls below the highest average of the run. Towards the end the average sinks a hundredfold with the learning
// rate, and a slot that comes back with an empty optimizer takes steps as large as at the beginning: they did no harm
// then, and a gate that refuses them would quarantine honest machines for having been away.
func (s *State) NormLimit() float64 {
	if s.Merged < NormGateFrom {
		return 0
	}
	return max(NormGate*s.NormAverage, s.NormPeak)
}
