package run

import (
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// reasonLate is why a slot with adopted work contributes: it has been trained before the lease was granted.
const reasonLate = "late"

// decideAdopt takes what a slot has trained under an ended lease into its present, empty one: if and only if its base is
// the round's or the previous round's, and only the longest prefix of which no chunk is contributed or claimed elsewhere.
func decideAdopt(s *State, c AdoptDelta) ([]event.Data, error) {
	if err := working(s, c); err != nil {
		return nil, err
	}
	l, err := training(s, c, c.Slot)
	if err != nil {
		return nil, err
	}
	if !l.empty() || l.Contribute != "" || l.Cut != nil {
		return nil, conflict(c, "the slot has begun other work")
	}
	keep, err := s.adoptable(c)
	if err != nil {
		return nil, err
	}
	e := s.Late[c.Slot]
	return one(&DeltaAdopted{Slot: c.Slot, Epoch: l.Epoch, Number: s.Number(c.Slot), Late: c.Late, Base: e.Base,
		Chunks: slices.Clone(c.Chunks[:keep]), Left: len(c.Chunks) - keep, Resume: c.Resume && e.Base == s.Open.Base})
}

// Adoptable reports whether the work would be adopted if the slot held an empty train lease of the open round.
func (s *State) Adoptable(c AdoptDelta) bool {
	if working(s, c) != nil || s.Open == nil || s.Open.Closed {
		return false
	}
	_, err := s.adoptable(c)
	return err == nil
}

// adoptable is how many of the chunks can be adopted, at a boundary whose weights the agent still holds.
func (s *State) adoptable(c AdoptDelta) (keep int, err error) {
	n := len(c.Chunks)
	if n == 0 || n > MaxRoundChunks || !slices.IsSorted(c.Boundaries) {
		return 0, invalid(c, "%d chunks, allowed are 1 to %d, with ascending boundaries", n, MaxRoundChunks)
	}
	if twice, ok := repeated(c.Chunks); ok {
		return 0, invalid(c, "chunk %d stands there twice", twice)
	}
	e := s.Late[c.Slot]
	switch {
	case e == nil || e.Epoch != c.Late:
		return 0, domain.Fenced(opOf(c), "that lease left nothing that could be adopted")
	case !e.Is(c):
		return 0, domain.Fenced(opOf(c), "it was trained for another contribution of that lease")
	case e.Base != s.Open.Base && e.Base != s.Previous:
		return 0, domain.Fenced(opOf(c), "it was trained on a base older than the previous round's")
	case len(s.Open.Contributions) >= MaxContributions:
		return 0, conflict(c, "the round holds %d contributions, which is the limit", MaxContributions)
	}
	theirs := setOf(e.Chunks)
	free := 0
	for free < n && theirs[c.Chunks[free]] && s.Chunks[c.Chunks[free]].Status == StatusQueued {
		free++
	}
	for _, b := range c.Boundaries {
		if b > 0 && b <= free {
			keep = b
		}
	}
	if keep == 0 {
		return 0, conflict(c, "its first chunks are contributed or claimed elsewhere")
	}
	return keep, nil
}

// BaseOf is the base that the lease's present contribution is made from.
func (s *State) BaseOf(l *Lease) domain.Digest {
	if l.Base != "" {
		return l.Base
	}
	return s.Open.Base
}
