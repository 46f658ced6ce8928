package run

import (
	"fmt"
	"math"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// decideOffer judges a delta. Without an inspection it answers only whether the offer is worth reading: a cut, a
// recorded or an unrecorded fence, or nothing, which means yes. With one it counts the delta or refuses it.
func decideOffer(s *State, c OfferContribution) ([]event.Data, error) {
	if err := checkOffer(s, c); err != nil {
		return nil, err
	}
	l := s.Leases[c.Slot]
	if l == nil || l.Epoch != c.Epoch {
		return offerFenced(s, c)
	}
	if l.Unit != UnitTrain {
		return nil, conflict(c, "the lease is for %s", l.Unit)
	}
	if now := s.Number(c.Slot); c.Number != now {
		if c.Number < now && c.Inspection != nil {
			return nil, nil // decided before: a repetition
		}
		return nil, conflict(c, "the present contribution is %d", now)
	}
	if l.Cut != nil && len(c.Chunks) != *l.Cut {
		return nil, conflict(c, "it was cut to its first %d chunks", *l.Cut)
	}
	if n := s.prefix(c); n < len(c.Chunks) {
		return one(cut(s, l, c, n))
	}
	if len(s.Open.Contributions) >= MaxContributions {
		return nil, conflict(c, "the round holds %d contributions, which is the limit", MaxContributions)
	}
	if c.Inspection == nil {
		return nil, nil
	}
	return judge(s, l, c)
}

// checkOffer refuses what no state would allow.
func checkOffer(s *State, c OfferContribution) error {
	n := len(c.Chunks)
	switch {
	case n == 0 || n > MaxRoundChunks:
		return invalid(c, "%d chunks, allowed are 1 to %d", n, MaxRoundChunks)
	case c.Steps < 1:
		return invalid(c, "%d steps", c.Steps)
	case c.Codec != s.Spec.Codec:
		return invalid(c, "it is written as %q, the run's codec is %q", domain.Clip(string(c.Codec), 20), s.Spec.Codec)
	case uint64(c.Epoch) > s.Seq:
		return invalid(c, "epoch %d has not been granted", c.Epoch)
	case !slices.IsSorted(c.Boundaries):
		return invalid(c, "its boundaries are not ascending")
	}
	if _, err := domain.ParseDigest(string(c.Blob)); err != nil {
		return invalid(c, "its blob has no digest")
	}
	if twice, ok := repeated(c.Chunks); ok {
		return invalid(c, "chunk %d stands there twice", twice)
	}
	return nil
}

// offerFenced refuses an offer under an epoch that is over. The last lease of a slot leaves one record of it, so that
// people see where work was lost; anything older, or a repetition, leaves none.
func offerFenced(s *State, c OfferContribution) ([]event.Data, error) {
	if s.Phase.Ended() || s.Ended[c.Slot] != c.Epoch || s.FencedAt[c.Slot] == c.Epoch {
		return nil, fenced(s, c, c.Slot, c.Epoch)
	}
	return one(&ContributionRefused{Slot: c.Slot, Epoch: c.Epoch, Number: c.Number, Blob: c.Blob, Why: RefusedFenced,
		Reason: fmt.Sprintf("lease %d has ended: others have its chunks, or the queue", c.Epoch)})
}

// prefix is how many of the offer's first chunks the slot may still contribute: those its weights are known to hold.
func (s *State) prefix(c OfferContribution) int {
	for i, chunk := range c.Chunks {
		if !s.inLease(c.Slot, chunk, StatusTrained) {
			return i
		}
	}
	return len(c.Chunks)
}

// cut keeps the longest prefix of at most n chunks at a boundary whose weights the agent still holds, and returns the
// rest of what the lease holds.
func cut(s *State, l *Lease, c OfferContribution, n int) *ContributionCut {
	keep := 0
	for _, b := range c.Boundaries {
		if b > 0 && b <= n {
			keep = b
		}
	}
	reason := fmt.Sprintf("chunk %d is not this slot's to count", c.Chunks[n])
	if keep < n {
		reason += fmt.Sprintf("; the weights of %s are gone", plural(n, "chunk"))
	}
	behind := leftOver(l, c.Chunks[:keep])
	returned := s.sole(c.Slot, behind, nil)
	return &ContributionCut{Slot: c.Slot, Epoch: c.Epoch, Number: c.Number, Keep: keep, Returned: returned,
		Others: except(behind, setOf(returned)), Reason: reason}
}

// leftOver lists what the lease holds but the contribution does not: trained chunks, then claimed ones.
func leftOver(l *Lease, kept []domain.ChunkID) []domain.ChunkID {
	return except(slices.Concat(l.Trained, l.Claimed), setOf(kept))
}

// judge applies the gates (rule 8) and counts the delta or refuses it.
func judge(s *State, l *Lease, c OfferContribution) ([]event.Data, error) {
	g := gridOf(&s.Spec, &s.Data)
	steps := g.steps(c.Chunks, s.Spec.Batch)
	in := *c.Inspection
	refused := &ContributionRefused{Slot: c.Slot, Epoch: c.Epoch, Number: c.Number, Blob: c.Blob, Why: in.Why, Reason: in.Note, Bytes: in.Bytes}
	rate := float64(in.Norm / math.Sqrt(float64(steps)))
	limit := s.NormLimit()
	switch {
	case in.Why == RefusedUnreadable || in.Why == RefusedBase || in.Why == RefusedLayout || in.Why == RefusedNotFinite:
	case in.Why != "":
		return nil, invalid(c, "%q is no finding of an inspection", domain.Clip(string(in.Why), 40))
	case !finite(in.Norm) || in.Norm < 0:
		refused.Why, refused.Reason = RefusedNotFinite, "its norm is no number"
	case limit > 0 && rate > limit:
		refused.Why, refused.Norm, refused.Limit = RefusedNorm, in.Norm, limit
		refused.Reason = fmt.Sprintf("norm/√steps is %.4g, at most %.4g is usual", rate, limit)
	default:
		accepted := &ContributionAccepted{Slot: c.Slot, Epoch: c.Epoch, Number: c.Number, Chunks: slices.Clone(c.Chunks),
			Samples: g.sum(c.Chunks), Steps: steps, Blob: c.Blob, Codec: c.Codec, Norm: in.Norm, Limit: limit,
			Returned: s.sole(c.Slot, leftOver(l, c.Chunks), nil), Bytes: in.Bytes, Base: l.Base}
		return append([]event.Data{accepted}, s.overtaken(c.Slot, c.Chunks)...), nil
	}
	refused.Reason = reasonOr(refused.Reason, string(refused.Why))
	refused.Returned = s.sole(c.Slot, leftOver(l, nil), nil)
	facts := []event.Data{refused}
	if refused.Why == RefusedNorm && s.allNormRefused(c.Slot) {
		facts = append(facts, &Paused{Gate: true, Reason: fmt.Sprintf("the norm gate refused every slot of round %d: %s", s.Open.Number, refused.Reason)})
	}
	return facts, nil
}

// allNormRefused reports whether, with slot refused now, the norm gate has refused every slot that trains in the round
// and nothing has been accepted. Then the gate is wrong, or the run is, and a person must look.
func (s *State) allNormRefused(slot domain.SlotID) bool {
	if s.Paused != "" || len(s.Open.Contributions) > 0 {
		return false
	}
	for _, l := range s.Leases {
		if l.Unit == UnitTrain && l.Slot != slot && !s.Open.NormRefused[l.Slot] {
			return false
		}
	}
	return true
}

// decideRevoke takes an accepted delta out of the ledger because it cannot be read. When nothing is left for the merge
// of a closed round, the round ends with the last good model.
func decideRevoke(s *State, c RevokeContribution) ([]event.Data, error) {
	if err := live(s, c); err != nil {
		return nil, err
	}
	if s.Open == nil {
		return nil, conflict(c, "no round waits for its merge")
	}
	for i := range s.Open.Contributions {
		k := &s.Open.Contributions[i]
		if k.Slot != c.Slot || k.Number != c.Number {
			continue
		}
		facts := []event.Data{&ContributionRevoked{Slot: k.Slot, Number: k.Number, Blob: k.Blob, Samples: k.Samples,
			Returned: slices.Clone(k.Chunks), Reason: reasonOr(c.Reason, "its delta cannot be read")}}
		if s.Open.Closed && len(s.Open.Contributions) == 1 {
			facts = append(facts, s.mergedWithout())
		}
		return facts, nil
	}
	if c.Number >= 1 && c.Number < s.Number(c.Slot) {
		return nil, nil // revoked before, or never accepted
	}
	return nil, domain.NotFound(opOf(c), "there is no such contribution in the round", "")
}
