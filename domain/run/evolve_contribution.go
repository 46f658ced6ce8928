package run

import (
	"math"
	"slices"

	"tensorturn/domain"
)

// NormMemory is how much of the moving average of norm/√steps stays with each accepted contribution: about ten of them
// make the average, so that it follows the slow decline of a run and not one odd delta.
const NormMemory = 0.9

// next empties the lease after its contribution was decided: the slot starts again from the round's base.
func (s *State) next(slot domain.SlotID, number int) {
	s.Open.Numbers[slot] = number
	if l := s.Leases[slot]; l != nil {
		s.leave(l, nil)
		l.Contribute, l.Cut, l.Sealed, l.Copying, l.Late, l.Base = "", nil, false, "", 0, ""
	}
}

// accepted counts the delta's chunks.
func (s *State) accepted(d *ContributionAccepted) {
	o := s.Open
	s.overtake(d.Slot, d.Chunks)
	if l := s.Leases[d.Slot]; l != nil {
		s.leave(l, setOf(d.Chunks)) // of what it leaves out, others may hold copies
		l.Trained, l.Claimed = nil, nil
	}
	s.pool(d.Returned)
	s.place(d.Chunks, StatusContributed, d.Slot)
	o.Contributions = append(o.Contributions, Contribution{Slot: d.Slot, Number: d.Number, Chunks: slices.Clone(d.Chunks),
		Samples: d.Samples, Steps: d.Steps, Blob: d.Blob, Codec: d.Codec, Base: d.Base})
	if d.Codec.Feedback() {
		if s.Fed == nil {
			s.Fed = map[domain.SlotID]domain.Digest{}
		}
		s.Fed[d.Slot] = d.Blob
	}
	o.Counted += len(d.Chunks)
	s.Counted += d.Samples
	s.NormAverage = average(s.NormAverage, d.Norm, d.Steps)
	s.NormPeak = max(s.NormPeak, s.NormAverage)
	delete(s.TaskFails, d.Slot)
	delete(s.Refusals, d.Slot.Machine())
	s.next(d.Slot, d.Number)
}

// average moves the average towards one delta's norm/√steps. The conversions forbid fused multiply-add: every machine
// must fold the log to the same bits.
func average(avg, norm float64, steps int) float64 {
	x := float64(norm / math.Sqrt(float64(max(steps, 1))))
	if avg == 0 {
		return x
	}
	return float64(NormMemory*avg) + float64((1-NormMemory)*x)
}

// refused sends the chunks back. A fenced refusal only leaves a trace: its chunks went back when the lease ended.
func (s *State) refused(d *ContributionRefused) {
	if d.Why == RefusedFenced {
		s.FencedAt[d.Slot] = d.Epoch
		return
	}
	s.next(d.Slot, d.Number)
	s.pool(d.Returned)
	if d.Why == RefusedNorm {
		s.Open.NormRefused[d.Slot] = true
		if len(s.Open.Contributions) == 0 {
			return // it may be the gate that is wrong: a machine is judged beside one whose delta was accepted
		}
	}
	s.Refusals[d.Slot.Machine()]++
}

// cut keeps the first chunks of the contribution in the lease. With none left the slot starts again from the base.
func (s *State) cut(d *ContributionCut) {
	l := s.Leases[d.Slot]
	switch {
	case d.Keep == 0:
		s.next(d.Slot, d.Number)
	case l != nil:
		keep := d.Keep
		s.leave(l, setOf(except(except(l.Trained, setOf(d.Returned)), setOf(d.Others))))
		l.Cut = &keep
	}
	s.pool(d.Returned)
}

// revoked corrects the ledger. Of a closed round the chunks are carried, of an open one they are queued again.
func (s *State) revoked(d *ContributionRevoked) {
	o := s.Open
	o.Contributions = slices.DeleteFunc(o.Contributions, func(c Contribution) bool { return c.Slot == d.Slot && c.Number == d.Number })
	if s.Fed[d.Slot] == d.Blob {
		delete(s.Fed, d.Slot)
	}
	o.Counted -= len(d.Returned)
	s.Counted -= d.Samples
	if o.Closed {
		s.carry(d.Returned)
		return
	}
	s.pool(d.Returned)
}

// carry keeps chunks for the next round, ordered by number: the sample clock's order.
func (s *State) carry(cs []domain.ChunkID) {
	s.place(cs, StatusUnplanned, "")
	s.Carried = append(s.Carried, cs...)
	slices.Sort(s.Carried)
}
