package run

import (
	"fmt"
	"maps"
	"slices"

	"tensorturn/domain"
)

// Audit checks what must hold in every state, whatever happened: each chunk is in exactly one place, the ledger is the
// sum of the counted chunks, leases are unique. A violation is a domain.KindIntegrity error: a defect of this package
// or a log that it did not write. It costs a walk over all chunks; the simulator calls it after every step, the hub
// when it opens. Of an ended run it says what was found at its end, when the lists were still there.
func Audit(s *State) error {
	if s == nil {
		return nil
	}
	if why := audit(s); why != "" {
		return domain.Integrity(fmt.Sprintf("audit run %s at %d", s.ID, s.Seq), why, "keep the log and report this")
	}
	return nil
}

// audit names the first violation, "" when there is none.
func audit(s *State) string {
	if s.Tally != nil && s.Tally.Wrong != "" {
		return s.Tally.Wrong
	}
	a := auditor{s: s, found: make([]Chunk, len(s.Chunks)), placed: make([]bool, len(s.Chunks))}
	if s.Tally == nil {
		a.places()
	}
	a.ledger()
	a.leases()
	a.members()
	return a.err
}

// auditor collects where each chunk is found and keeps the first violation.
type auditor struct {
	s      *State
	found  []Chunk
	placed []bool
	err    string
}

func (a *auditor) fail(format string, args ...any) {
	if a.err == "" {
		a.err = fmt.Sprintf(format, args...)
	}
}

// put notes that the chunks were found somewhere.
func (a *auditor) put(cs []domain.ChunkID, status ChunkStatus, slot domain.SlotID) {
	for _, c := range cs {
		if c < 0 || int(c) >= len(a.found) {
			a.fail("chunk %d does not exist", c)
			continue
		}
		if a.placed[c] {
			a.fail("chunk %d is in two places", c)
		}
		a.placed[c], a.found[c] = true, Chunk{Status: status, Slot: slot}
	}
}

// places walks over every list of chunks and compares it with the table.
func (a *auditor) places() {
	s := a.s
	a.put(s.Carried, StatusUnplanned, "")
	for _, slot := range s.Slots() {
		l := s.Leases[slot]
		a.put(a.first(slot, l.Claimed), StatusClaimed, slot)
		a.put(a.first(slot, l.Trained), StatusTrained, slot)
	}
	a.copies()
	if s.Open != nil {
		a.put(s.Open.Pool, StatusQueued, "")
		for _, slot := range slices.Sorted(maps.Keys(s.Open.Shards)) {
			a.put(s.Open.Shards[slot], StatusQueued, slot)
		}
		for _, k := range s.Open.Contributions {
			a.put(k.Chunks, StatusContributed, k.Slot)
		}
	}
	for c, have := range s.Chunks {
		switch {
		case a.placed[c] && have != a.found[c]:
			a.fail("chunk %d is %s of %q by the table, %s of %q by the lists", c, have.Status, have.Slot, a.found[c].Status, a.found[c].Slot)
		case !a.placed[c] && c < s.NextChunk && have.Status != StatusMerged:
			a.fail("chunk %d is %s by the table and in no list", c, have.Status)
		case !a.placed[c] && c >= s.NextChunk && have != Chunk{}:
			a.fail("chunk %d is %s before any round owned it", c, have.Status)
		}
	}
}

// first lists those of the chunks of which the slot holds the first copy.
func (a *auditor) first(slot domain.SlotID, cs []domain.ChunkID) []domain.ChunkID {
	if a.s.Open == nil || len(a.s.Open.Copies) == 0 {
		return cs
	}
	return slices.DeleteFunc(slices.Clone(cs), func(c domain.ChunkID) bool { return a.s.Open.Copies[c] == slot })
}

// copies checks that every second copy is in the lease that it names, and the first one in another's.
func (a *auditor) copies() {
	if a.s.Open == nil {
		return
	}
	in := func(slot domain.SlotID, c domain.ChunkID) bool {
		l := a.s.TrainLease(slot)
		return l != nil && (slices.Contains(l.Claimed, c) || slices.Contains(l.Trained, c))
	}
	for _, c := range slices.Sorted(maps.Keys(a.s.Open.Copies)) {
		copier := a.s.Open.Copies[c]
		if first := a.s.Chunks[c].Slot; first == copier || !in(copier, c) || !in(first, c) {
			a.fail("chunk %d has copies at %s and %s, which do not both hold it", c, first, copier)
		}
	}
}

// ledger compares the account with the chunks.
func (a *auditor) ledger() {
	if a.s.Ensemble != nil {
		return // members have an account each
	}
	s, g := a.s, gridOf(&a.s.Spec, &a.s.Data)
	var counted int64
	open := 0
	for c, have := range s.Chunks {
		if have.Status >= StatusContributed {
			_, _, n := g.at(domain.ChunkID(c))
			counted += int64(n)
		}
		if have.Status == StatusContributed {
			open++
		}
	}
	if s.Tally != nil {
		counted = s.Tally.Samples
	}
	l := s.Ledger()
	if l.Counted != counted {
		a.fail("the ledger counts %d samples, the chunks %d", l.Counted, counted)
	}
	if l.Counted > l.Expected {
		a.fail("the ledger counts %d samples of %d", l.Counted, l.Expected)
	}
	if s.Phase == PhaseCompleted && l.Counted != l.Expected {
		a.fail("the run is completed with %d of %d samples", l.Counted, l.Expected)
	}
	if s.Open != nil && s.Open.Counted != open {
		a.fail("the round counts %d chunks, the table %d", s.Open.Counted, open)
	}
}

// leases checks epochs, single units, and that nothing is held without a lease.
func (a *auditor) leases() {
	s := a.s
	epochs := map[domain.Epoch]bool{}
	units := map[Unit]int{}
	for _, slot := range s.Slots() {
		l := s.Leases[slot]
		units[l.Unit]++
		if l.Slot != slot || l.Epoch == 0 || uint64(l.Epoch) > s.Seq || epochs[l.Epoch] {
			a.fail("the lease of %s has slot %s and epoch %d", slot, l.Slot, l.Epoch)
		}
		epochs[l.Epoch] = true
		if l.Unit == UnitTrain && (s.Open == nil || s.Open.Closed || s.Open.Number != l.Round) {
			a.fail("the lease of %s trains round %d, which is not open", slot, l.Round)
		}
	}
	if units[UnitInit] > 1 || units[UnitEvaluate] > 1 {
		a.fail("%d slots make the first base, %d evaluate", units[UnitInit], units[UnitEvaluate])
	}
	if s.Phase.Ended() && len(s.Leases) > 0 {
		a.fail("the run is %s and %d leases are held", s.Phase, len(s.Leases))
	}
	if s.Open == nil {
		return
	}
	for _, slot := range slices.Sorted(maps.Keys(s.Open.Shards)) {
		if s.TrainLease(slot) == nil {
			a.fail("%s has a shard and no lease", slot)
		}
	}
}
