package replay

import (
	"fmt"
	"slices"

	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// contradiction says in what the fact e contradicts the facts before it, "" when it does not. The chain shows that the
// records are those that were written; this shows that what was written adds up: what a merge read is what the ledger
// counted, and each round begins where the one before it ended.
func (l *Log) contradiction(e event.Envelope) string {
	if _, first := e.Data.(*run.Submitted); first == (l.state != nil) {
		return fmt.Sprintf("%s does not begin a run once", e.Data.EventName())
	}
	switch d := e.Data.(type) {
	case *run.RoundOpened:
		if d.Base != l.state.Base {
			return fmt.Sprintf("round %d does not begin with the run's present weights", d.Round)
		}
	case *run.ContributionAccepted:
		for _, c := range d.Chunks {
			if c < 0 || int(c) >= len(l.state.Chunks) {
				return fmt.Sprintf("chunk %d does not exist", c)
			}
		}
		if n := l.state.Samples(d.Chunks); d.Samples != n {
			return fmt.Sprintf("contribution %d of %s weighs %d samples, its chunks have %d", d.Number, d.Slot, d.Samples, n)
		}
		if d.Base != "" && d.Base != l.state.Previous {
			return fmt.Sprintf("contribution %d of %s was made from base %s, which is not the previous round's", d.Number, d.Slot, d.Base.Short())
		}
	case *run.DeltaAdopted:
		return adoptionContradiction(l.state, d)
	case *run.RoundMerged:
		return mergeContradiction(l.state, d)
	case *run.Voted:
		if l.state.Ensemble == nil {
			return "a run without members votes"
		}
		return voteContradiction(l.state, d)
	case *run.Completed:
		if d.Model != l.state.Base || d.Samples != l.state.Counted {
			return fmt.Sprintf("the run completes with model %s and %d samples, the last round left %s and %d",
				d.Model.Short(), d.Samples, l.state.Base.Short(), l.state.Counted)
		}
	}
	return ""
}

// adoptionContradiction compares a late delta with the rounds: its base must be recent, and its chunks nobody else's.
func adoptionContradiction(s *run.State, d *run.DeltaAdopted) string {
	if s.Open == nil || d.Base != s.Open.Base && d.Base != s.Previous {
		return fmt.Sprintf("%s contributes late what it trained on base %s, which is neither the round's nor the previous one's", d.Slot, d.Base.Short())
	}
	for _, c := range d.Chunks {
		if c < 0 || int(c) >= len(s.Chunks) || s.Chunks[c].Status != run.StatusQueued {
			return fmt.Sprintf("%s contributes late chunk %d, which was not queued", d.Slot, c)
		}
	}
	return ""
}

// mergeContradiction compares a merge with the closed round that it merges.
func mergeContradiction(s *run.State, d *run.RoundMerged) string {
	inputs, closed := s.NeedsMerge()
	switch {
	case !closed || d.Round != s.Open.Number:
		return fmt.Sprintf("round %d was not closed", d.Round)
	case d.Base != s.Base || d.Momentum != s.Momentum:
		return fmt.Sprintf("the merge of round %d does not begin where the round before ended", d.Round)
	case d.Residual != s.Residual || d.Down != s.Spec.Down() && len(inputs) > 0:
		return fmt.Sprintf("the merge of round %d does not go on with the codec and residual that the round before left", d.Round)
	case d.Eta != s.Open.Eta || d.Mu != s.Open.Mu:
		return fmt.Sprintf("round %d was opened with another outer step than it was merged with", d.Round)
	case !slices.Equal(d.Inputs, inputs):
		return fmt.Sprintf("the inputs of the merge of round %d are not the contributions that the log accepted", d.Round)
	case len(inputs) == 0 && (d.NextBase != s.Base || d.NextMomentum != s.Momentum || d.NextResidual != s.Residual):
		return fmt.Sprintf("round %d has no contributions and changes the model", d.Round)
	}
	return ""
}
