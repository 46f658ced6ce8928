package plan_test

import (
	"fmt"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// told writes a fact that plan led to in the words of the scenario files, which change for nobody's taste.
func told(f event.Data) string {
	switch d := f.(type) {
	case *run.LeaseGranted:
		if d.Unit == run.UnitInit {
			return fmt.Sprintf("%s gets %s: %s", d.Slot, d.Unit, d.Reason)
		}
		if d.Unit == run.UnitMember {
			return fmt.Sprintf("%s gets member %d: %s", d.Slot, d.Member, d.Reason)
		}
		return fmt.Sprintf("%s gets %s of round %d: %s", d.Slot, d.Unit, d.Round, d.Reason)
	case *run.LeaseReleased:
		return fmt.Sprintf("%s is released, returning %s: %s", d.Slot, ranges(d.Returned), d.Reason)
	case *run.RoundOpened:
		return fmt.Sprintf("round %d opens with %s, %d of them carried over, expected %.0f s, deadline %.0f s", d.Round, ranges(d.Chunks), d.Carried, d.Expected, d.Deadline)
	case *run.RoundExtended:
		return fmt.Sprintf("round %d is extended at %d of %d chunks to %.0f s", d.Round, d.Counted, d.Chunks, d.Deadline)
	case *run.RoundClosed:
		return fmt.Sprintf("round %d closes with %d chunks counted, carrying %s: %s", d.Round, d.Counted, ranges(d.Missing), d.Reason)
	case *run.ShardAssigned:
		return fmt.Sprintf("%s is dealt %s: %s", d.Slot, ranges(d.Chunks), d.Reason)
	case *run.ShardReturned:
		return fmt.Sprintf("%s returns %s: %s", d.Slot, ranges(d.Chunks), d.Reason)
	case *run.ChunksStolen:
		return fmt.Sprintf("%s steals %s from %s: %s", d.To, ranges(d.Chunks), d.From, d.Reason)
	case *run.ChunksCopied:
		return fmt.Sprintf("%s trains copies of %s of %s: %s", d.Slot, ranges(d.Chunks), d.From, d.Reason)
	case *run.ChunksClaimed:
		return fmt.Sprintf("%s claims %s", d.Slot, ranges(d.Chunks))
	case *run.MemberRequeued:
		return fmt.Sprintf("member %d is requeued with %d chunks kept: %s", d.Member, d.Kept, d.Reason)
	case *run.MemberDropped:
		return fmt.Sprintf("member %d is dropped: %s", d.Member, d.Reason)
	case *run.Failed:
		return "failed: " + d.Reason
	case *run.ContributionRequested:
		if d.Member > 0 {
			return fmt.Sprintf("%s is asked to give member %d back: %s", d.Slot, d.Member, d.Reason)
		}
		return fmt.Sprintf("%s is asked for contribution %d: %s", d.Slot, d.Number, d.Reason)
	}
	panic(fmt.Sprintf("plan never leads to %T", f))
}

// ranges writes a list of chunks with its runs: 0-3,7.
func ranges(cs []domain.ChunkID) string {
	if len(cs) == 0 {
		return "none"
	}
	var parts []string
	for i := 0; i < len(cs); {
		j := i
		for j+1 < len(cs) && cs[j+1] == cs[j]+1 {
			j++
		}
		if j > i {
			parts = append(parts, fmt.Sprintf("%d-%d", cs[i], cs[j]))
		} else {
			parts = append(parts, fmt.Sprint(cs[i]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}
