package run

// members checks that each member's lineage of checkpoints is one chain that counts every chunk once, that one slot at most trains it, and
// that the ledger is their sum.
func (a *auditor) members() {
	s := a.s
	if s.Ensemble == nil {
		return
	}
	var counted int64
	for i := range s.Ensemble.Members {
		m := &s.Ensemble.Members[i]
		if m.Number != i+1 {
			a.fail("member %d stands at place %d", m.Number, i+1)
		}
		a.lineage(m)
		a.holder(m)
		if m.Status != MemberGone {
			counted += m.Samples
		}
		if m.Status == MemberIn && (m.Weights == "" || (m.Outputs == nil) == (m.Unvoted == "")) {
			a.fail("member %d is in without weights, or without outputs or a reason", m.Number)
		}
	}
	if counted != s.Counted {
		a.fail("the ledger counts %d samples, the members %d", s.Counted, counted)
	}
	in, open := s.MembersIn()
	switch {
	case s.Phase == PhaseCompleted && (in < s.Spec.Ensemble.Min || open > 0):
		a.fail("the run is completed with %d members in and %d open, at least %d must be in", in, open, s.Spec.Ensemble.Min)
	case s.Phase == PhaseVoting && (open > 0 || len(s.Voters()) == 0):
		a.fail("the vote is awaited with %d members open and %d voters", open, len(s.Voters()))
	}
}

// lineage compares what the member has seen with the stretches of its leases.
func (a *auditor) lineage(m *Member) {
	at := 0
	for i, g := range m.Segments {
		if g.From != at || g.To <= g.From {
			a.fail("member %d's stretch %d leads from chunk %d to %d, after %d", m.Number, i, g.From, g.To, at)
		}
		if i > 0 && g.Epoch <= m.Segments[i-1].Epoch {
			a.fail("member %d's stretches are not in the order of their leases", m.Number)
		}
		at = g.To
	}
	spec := a.s.MemberSpec(m.Number)
	if at != m.Chunks || m.Samples != MemberSamples(spec, a.s.Data, m.Chunks) {
		a.fail("member %d stands at chunk %d with %d samples, its stretches end at %d", m.Number, m.Chunks, m.Samples, at)
	}
	if m.Weights != "" && m.Samples != TotalSamples(spec, a.s.Data) {
		a.fail("member %d is trained with %d samples of %d", m.Number, m.Samples, TotalSamples(spec, a.s.Data))
	}
	if m.Chunks > 0 && m.Checkpoint == "" {
		a.fail("member %d stands at chunk %d without a checkpoint", m.Number, m.Chunks)
	}
}

// holder checks that the member and its lease name each other.
func (a *auditor) holder(m *Member) {
	l := a.s.Leases[m.Slot]
	free := m.Status == MemberWaiting || m.Status == MemberGone
	if m.Status == MemberTraining && m.Slot == "" || m.Slot != "" && (free || l == nil || l.Member != m.Number || l.Unit != UnitMember) {
		a.fail("member %d is %s and its lease is %q's", m.Number, m.Status, m.Slot)
	}
}
