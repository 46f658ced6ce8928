package run

import (
	"fmt"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// How long a round may take before it closes without all of its chunks.
const (
	DeadlineFactor  = 4.0   // times the expected time (design section 9)
	DeadlineUnknown = 600.0 // seconds, while no speed is known: the first round measures
	DeadlineLeast   = 10.0  // seconds: below it a round trip to an agent decides more than its speed

	// MaxExpected is the longest time that a round may be expected to take, in seconds: its deadline is then the longest that a
	// spec may ask for. Beyond it nobody would see that a round hangs.
	MaxExpected = MaxDeadline / DeadlineFactor
)

// decideOpen puts the carried chunks and the next B into a new round.
func decideOpen(s *State, c OpenRound) ([]event.Data, error) {
	if err := working(s, c); err != nil {
		return nil, err
	}
	if s.Open != nil {
		return nil, nil
	}
	if s.Phase != PhaseTraining {
		return nil, conflict(c, "the run is %s", s.Phase)
	}
	if !s.left() {
		return nil, conflict(c, "no chunk is left")
	}
	if !(c.Expected >= 0 && c.Expected <= MaxExpected) {
		return nil, invalid(c, "%v seconds expected, allowed are 0 to %.0f", c.Expected, MaxExpected)
	}
	carried, own := s.nextRound()
	chunks := slices.Clone(s.Carried[:carried])
	for i := range own {
		chunks = append(chunks, domain.ChunkID(s.NextChunk+i))
	}
	return one(&RoundOpened{Round: s.Merged + 1, Base: s.Base, Chunks: chunks, Carried: carried,
		Eta: *s.Spec.Outer.LR, Mu: *s.Spec.Outer.Momentum, Expected: c.Expected, Deadline: deadline(s, c.Expected)})
}

// NextRound is how many chunks the next round would have.
func (s *State) NextRound() int {
	carried, own := s.nextRound()
	return carried + own
}

// nextRound is how many chunks the next round carries and how many it owns: an even share of those that no round has
// owned, at most B. A short last round would take the whole outer momentum for a part of the data and overshoot:
// measured on the digits, 0.868 with a short last round against 0.883 with even ones.
func (s *State) nextRound() (carried, own int) {
	carried = min(len(s.Carried), MaxRoundChunks)
	if left := len(s.Chunks) - s.NextChunk; left > 0 && s.budget() > 0 {
		rounds := over(left, s.budget())
		own = over(left, rounds)
	}
	return carried, min(own, MaxRoundChunks-carried)
}

// over divides and rounds up.
func over(a, b int) int { return (a + b - 1) / b }

// budget is B: what the first round recorded, and before it the spec's wish.
func (s *State) budget() int {
	if s.Budget > 0 {
		return s.Budget
	}
	return s.Spec.Round.Chunks
}

func deadline(s *State, expected float64) float64 {
	switch {
	case s.Spec.Round.Deadline > 0:
		return s.Spec.Round.Deadline
	case expected > 0:
		return max(float64(DeadlineFactor*expected), DeadlineLeast)
	}
	return DeadlineUnknown
}

// openRound finds the round that a command names. Past is true when that round is over.
func openRound(s *State, c Command, round int) (past bool, err error) {
	if round >= 1 && round <= s.Merged {
		return true, nil
	}
	if err := live(s, c); err != nil {
		return false, err
	}
	if s.Open == nil || s.Open.Number != round {
		return false, conflict(c, "it is not open")
	}
	return false, nil
}

// decideExtend doubles the deadline of a round that has less than half of its chunks.
func decideExtend(s *State, c ExtendRound) ([]event.Data, error) {
	past, err := openRound(s, c, c.Round)
	if past || err != nil {
		return nil, err
	}
	o := s.Open
	if o.Closed {
		return nil, nil
	}
	if o.enough() {
		return nil, conflict(c, "%d of %d chunks are enough to close it", o.Counted, len(o.Chunks))
	}
	return one(&RoundExtended{Round: o.Number, Counted: o.Counted, Chunks: len(o.Chunks), Deadline: float64(2 * o.Deadline)})
}

// enough reports whether the round may close at its deadline: at least half of its chunks are counted, or it holds as
// many contributions as a merge may name.
func (o *OpenRoundState) enough() bool {
	return 2*o.Counted >= len(o.Chunks) || len(o.Contributions) >= MaxContributions
}

// Complete reports whether every chunk of the round is counted.
func (o *OpenRoundState) Complete() bool { return o.Counted == len(o.Chunks) }

// decideClose ends the work on a round. Every train lease ends in the same batch; what is not counted is carried.
func decideClose(s *State, c CloseRound) ([]event.Data, error) {
	past, err := openRound(s, c, c.Round)
	if past || err != nil {
		return nil, err
	}
	o := s.Open
	if o.Closed {
		return nil, nil
	}
	reason := "complete"
	if !o.Complete() {
		if !o.enough() {
			return nil, conflict(c, "%d of %d chunks are less than half", o.Counted, len(o.Chunks))
		}
		reason = "deadline"
	}
	var facts []event.Data
	gone := map[domain.SlotID]bool{}
	for _, slot := range s.Slots() {
		if l := s.Leases[slot]; l.Unit == UnitTrain {
			facts = append(facts, releaseBut(s, l, "round closed", gone))
			gone[slot] = true
		}
	}
	return append(facts, &RoundClosed{Round: o.Number, Reason: reason, Counted: o.Counted, Missing: s.uncounted()}), nil
}

// uncounted lists the open round's chunks that no contribution holds, by number, as the round has them: carried chunks
// are older than the round's own.
func (s *State) uncounted() []domain.ChunkID {
	var missing []domain.ChunkID
	for _, c := range s.Open.Chunks {
		if s.Chunks[c].Status < StatusContributed {
			missing = append(missing, c)
		}
	}
	return missing
}

// decideMerge records the outer step of a closed round.
func decideMerge(s *State, c RecordMerge) ([]event.Data, error) {
	past, err := openRound(s, c, c.Round)
	if past || err != nil {
		return nil, err
	}
	if !s.Open.Closed || len(s.Open.Contributions) == 0 {
		return nil, conflict(c, "it does not wait for a merge")
	}
	for _, d := range []domain.Digest{c.NextBase, c.NextMomentum} {
		if _, err := domain.ParseDigest(string(d)); err != nil {
			return nil, invalid(c, "%q is not a digest", domain.Clip(string(d), 80))
		}
	}
	if !finite(c.StepNorm) || c.StepNorm < 0 {
		return nil, invalid(c, "a step of norm %v", c.StepNorm)
	}
	down := s.Spec.Down()
	for _, d := range []domain.Digest{c.NextResidual, c.Increment} {
		if _, err := domain.ParseDigest(string(d)); down != "" && err != nil || down == "" && d != "" {
			return nil, invalid(c, "increment %q and residual %q with codec_down %q", domain.Clip(string(c.Increment), 80), domain.Clip(string(c.NextResidual), 80), down)
		}
	}
	merged := &RoundMerged{Round: c.Round, Base: s.Base, Momentum: s.Momentum, Inputs: s.inputs(), Eta: s.Open.Eta, Mu: s.Open.Mu,
		NextBase: c.NextBase, NextMomentum: c.NextMomentum, StepNorm: c.StepNorm, BaseBytes: c.BaseBytes, InputBytes: c.InputBytes,
		Down: down, Residual: s.Residual, NextResidual: c.NextResidual, Increment: c.Increment, IncrementBytes: c.IncrementBytes}
	facts := []event.Data{merged}
	if s.last() && s.Data.Heldout == 0 {
		facts = append(facts, &Completed{Model: c.NextBase, Samples: s.Counted})
	}
	return facts, nil
}

// last reports whether nothing is left to train once the open round is merged.
func (s *State) last() bool { return s.NextChunk == len(s.Chunks) && len(s.Carried) == 0 }

// mergedWithout ends a closed round that has lost its only contribution: no input, the same model and momentum.
func (s *State) mergedWithout() *RoundMerged {
	return &RoundMerged{Round: s.Open.Number, Base: s.Base, Momentum: s.Momentum, Eta: s.Open.Eta, Mu: s.Open.Mu,
		NextBase: s.Base, NextMomentum: s.Momentum, Residual: s.Residual, NextResidual: s.Residual}
}

// String names a round for people.
func (o *OpenRoundState) String() string {
	return fmt.Sprintf("round %d: %d of %d chunks", o.Number, o.Counted, len(o.Chunks))
}
