package run

import "tensorturn/domain"

// Tally is what an ended run keeps of its chunks. The table of a million chunks takes 24 MiB, a pool's history has many runs, and
// nothing that ends needs it again: whoever wants the table folds the log up to the end.
type Tally struct {
	Chunks  [StatusMerged + 1]int // by status
	Samples int64                 // in those that are counted, by the table: the account must say the same
	Round   int                   // that was open, 0 when none was
	Deltas  int                   // accepted in it
	Wrong   string                // what an audit found at the end, empty when nothing
}

// over ends the run: it is audited a last time, and the lists of its chunks go.
func (s *State) over(p Phase, reason string) {
	s.Phase, s.Reason = p, reason
	clear(s.Late)
	if s.Tally != nil { // it has ended before; what comes later in the log is believed all the same
		return
	}
	t := &Tally{Wrong: audit(s)}
	g := gridOf(&s.Spec, &s.Data)
	for c, have := range s.Chunks {
		t.Chunks[have.Status]++
		if have.Status >= StatusContributed {
			_, _, n := g.at(domain.ChunkID(c))
			t.Samples += int64(n)
		}
	}
	if s.Open != nil {
		t.Round, t.Deltas = s.Open.Number, len(s.Open.Contributions)
	}
	s.Tally, s.Chunks, s.Carried, s.Open = t, nil, nil, nil
}

// Counts gives the number of chunks by status.
func (s *State) Counts() [StatusMerged + 1]int {
	if s.Tally != nil {
		return s.Tally.Chunks
	}
	var n [StatusMerged + 1]int
	for _, c := range s.Chunks {
		n[c.Status]++
	}
	return n
}

// OpenRound gives the round that is open, or was when the run ended, and its accepted contributions; 0 for none.
func (s *State) OpenRound() (round, deltas int) {
	switch {
	case s.Tally != nil:
		return s.Tally.Round, s.Tally.Deltas
	case s.Open != nil:
		return s.Open.Number, len(s.Open.Contributions)
	}
	return 0, 0
}
