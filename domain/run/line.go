package run

import (
	"fmt"
	"strings"

	"tensorturn/domain"
)

// Line renders a fact for people: one line, no full stop, the slot first where there is one.

func (e *Submitted) Line() string {
	if e.Spec.IsEnsemble() {
		return fmt.Sprintf("%s: %s × %s for each of %s", e.Spec.Name, plural(e.Data.Samples, "sample"), plural(e.Spec.Epochs, "epoch"), plural(e.Spec.Ensemble.Members, "member"))
	}
	return fmt.Sprintf("%s: %s × %s in chunks of %d, %s a round",
		e.Spec.Name, plural(e.Data.Samples, "sample"), plural(e.Spec.Epochs, "epoch"), e.Spec.Chunk, plural(e.Spec.Round.Chunks, "chunk"))
}
func (e *Paused) Line() string    { return "paused: " + e.Reason }
func (e *Resumed) Line() string   { return "resumed" }
func (e *Cancelled) Line() string { return "cancelled: " + e.Reason }
func (e *Failed) Line() string    { return "failed: " + e.Reason }

func (e *Completed) Line() string {
	tail := ""
	if !e.Evaluated {
		tail = ", not evaluated"
	}
	if e.Members > 0 {
		return fmt.Sprintf("completed with %s after %s%s", plural(e.Members, "member"), plural(int(e.Samples), "sample"), tail)
	}
	return fmt.Sprintf("completed with model %s after %s%s", e.Model.Short(), plural(int(e.Samples), "sample"), tail)
}

func (e *Initialised) Line() string {
	line := fmt.Sprintf("%s made the first base %s (%s)", e.Slot, e.Base.Short(), plural(int(e.Params), "parameter"))
	if e.Take != nil {
		line += fmt.Sprintf("; a dry step took %s", e.Take)
	}
	return line
}

func (e *LeaseGranted) Line() string {
	if e.Unit == UnitMember {
		return fmt.Sprintf("%s gets %s", e.Slot, modelWord(e.Member, e.Single)) + why(e.Reason)
	}
	return fmt.Sprintf("%s gets the %s unit%s", e.Slot, e.Unit, ofRound(e.Unit, e.Round)) + why(e.Reason)
}

func (e *LeaseReleased) Line() string {
	return fmt.Sprintf("%s gives its lease %d back", e.Slot, e.Epoch) + returned("returning", e.Returned) + why(e.Reason)
}

func (e *LeaseExpired) Line() string {
	return fmt.Sprintf("%s loses its lease %d after %.1f s of silence", e.Slot, e.Epoch, e.Silent) + returned("requeued", e.Requeued) + why(e.Reason)
}

func (e *TaskFailed) Line() string {
	return fmt.Sprintf("%s failed at %s (%d of %d): %s", e.Slot, e.Unit, e.Count, MaxTaskFailures, e.Error) + returned("returning", e.Returned)
}

func (e *RoundOpened) Line() string {
	carried := ""
	if e.Carried > 0 {
		carried = fmt.Sprintf(" (%d carried over)", e.Carried)
	}
	return fmt.Sprintf("round %d opens on base %s with %s%s, deadline %.0f s", e.Round, e.Base.Short(), named(e.Chunks), carried, e.Deadline)
}

func (e *RoundExtended) Line() string {
	return fmt.Sprintf("round %d is stalled at %d of %d chunks, deadline %.0f s", e.Round, e.Counted, e.Chunks, e.Deadline)
}

func (e *RoundClosed) Line() string {
	missing := ""
	if len(e.Missing) > 0 {
		missing = ", carrying " + named(e.Missing)
	}
	return fmt.Sprintf("round %d closes with %s counted%s", e.Round, plural(e.Counted, "chunk"), missing) + why(e.Reason)
}

func (e *RoundMerged) Line() string {
	return fmt.Sprintf("round %d merged %s into base %s, step %.3g", e.Round, plural(len(e.Inputs), "contribution"), e.NextBase.Short(), e.StepNorm)
}

func (e *ShardAssigned) Line() string {
	return fmt.Sprintf("%s is dealt %s", e.Slot, named(e.Chunks)) + why(e.Reason)
}

func (e *ShardReturned) Line() string {
	return fmt.Sprintf("%s returns %s of its shard", e.Slot, named(e.Chunks)) + why(e.Reason)
}

func (e *ChunksStolen) Line() string {
	return fmt.Sprintf("%s steals %s from %s", e.To, named(e.Chunks), e.From) + why(e.Reason)
}

func (e *ChunksClaimed) Line() string { return fmt.Sprintf("%s claims %s", e.Slot, named(e.Chunks)) }

func (e *ChunkTrained) Line() string {
	return fmt.Sprintf("%s trained chunk %d in %.2f s, loss %.4g", e.Slot, e.Chunk, e.Seconds, e.Loss)
}

func (e *ContributionRequested) Line() string {
	if e.Member > 0 {
		return fmt.Sprintf("%s is asked to give member %d back", e.Slot, e.Member) + why(e.Reason)
	}
	return fmt.Sprintf("%s is asked for contribution %d", e.Slot, e.Number) + why(e.Reason)
}

func (e *ContributionAccepted) Line() string {
	return fmt.Sprintf("%s contributes %s: %s, delta %s", e.Slot, named(e.Chunks), plural(int(e.Samples), "sample"), e.Blob.Short()) + returned("returning", e.Returned)
}

func (e *ContributionRefused) Line() string {
	return fmt.Sprintf("%s has contribution %d refused (%s): %s", e.Slot, e.Number, e.Why, e.Reason) + returned("returning", e.Returned)
}

func (e *ContributionCut) Line() string {
	return fmt.Sprintf("%s has contribution %d cut to %s", e.Slot, e.Number, plural(e.Keep, "chunk")) + returned("returning", e.Returned) + why(e.Reason)
}

func (e *ContributionRevoked) Line() string {
	return fmt.Sprintf("%s has contribution %d revoked, %s less", e.Slot, e.Number, plural(int(e.Samples), "sample")) + returned("returning", e.Returned) + why(e.Reason)
}

func (e *Evaluated) Line() string {
	if e.MAE != nil {
		return fmt.Sprintf("%s measured the model of round %d: %s on %s", e.Slot, e.Round, e.Figures(), plural(e.Samples, "sample"))
	}
	return fmt.Sprintf("%s measured the model of round %d: accuracy %.4f, loss %.4g on %s", e.Slot, e.Round, e.Accuracy, e.Loss, plural(e.Samples, "sample"))
}

// Figures are what was measured, for people.
func (e *Evaluated) Figures() string {
	if e.MAE == nil {
		return fmt.Sprintf("accuracy %.4f, loss %.4f", e.Accuracy, e.Loss)
	}
	r2 := "R² -"
	if e.R2 != nil {
		r2 = fmt.Sprintf("R² %.4f", *e.R2)
	}
	return fmt.Sprintf("%s, mean absolute error %.4g, mean squared error %.4g", r2, *e.MAE, e.Loss)
}

func (e *EvaluationFailed) Line() string {
	tail := ""
	if e.GaveUp {
		tail = ", giving up"
	}
	return fmt.Sprintf("%s failed to measure the model of round %d (%d of %d)%s: %s", e.Slot, e.Round, e.Count, MaxEvaluationFailures, tail, e.Error)
}

func why(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

func returned(word string, cs []domain.ChunkID) string {
	if len(cs) == 0 {
		return ""
	}
	return ", " + word + " " + named(cs)
}

func ofRound(u Unit, round int) string {
	if u == UnitInit {
		return ""
	}
	return fmt.Sprintf(" of round %d", round)
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// maxRanges keeps a line of a large, scattered list short.
const maxRanges = 8

// ranges writes a list of chunks in its order, runs of neighbours as "first–last".
func ranges(cs []domain.ChunkID) string {
	var b strings.Builder
	parts := 0
	for i := 0; i < len(cs); {
		j := i + 1
		for j < len(cs) && cs[j] == cs[j-1]+1 {
			j++
		}
		if parts == maxRanges {
			fmt.Fprintf(&b, " and %d more", len(cs)-i)
			break
		}
		if parts > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, cs[i])
		if j-i > 1 {
			fmt.Fprintf(&b, "–%d", cs[j-1])
		}
		parts, i = parts+1, j
	}
	return b.String()
}

// named writes a list of chunks with the word before it.
func named(cs []domain.ChunkID) string {
	if len(cs) == 1 {
		return "chunk " + ranges(cs)
	}
	return "chunks " + ranges(cs)
}
