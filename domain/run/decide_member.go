package run

import (
	"fmt"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/vote"
)

// The commands of an ensemble, beside those of leases.
type (
	// RecordCheckpoint says that the slot's member stands in the store at Chunks. Under a recall it also gives the lease back,
	// with Blob empty when nothing was trained beyond the newest checkpoint.
	RecordCheckpoint struct {
		Slot   domain.SlotID
		Epoch  domain.Epoch
		Chunks int
		Blob   domain.Digest
		Loss   float64
		Bytes  int64 // of the blob
	}
	// RecordMember says that the slot's member is trained and its weights are in the store.
	RecordMember struct {
		Slot    domain.SlotID
		Epoch   domain.Epoch
		Weights domain.Digest
		Layout  domain.Digest
		Params  int64
		Loss    float64
	}
	// RecordOutputs gives the trained member's outputs, or says why there are none. It ends the lease.
	RecordOutputs struct {
		Slot    domain.SlotID
		Epoch   domain.Epoch
		Outputs *MemberOutputs
		Why     string
	}
	// DropMember takes a member out for the reason, by the planner.
	DropMember struct {
		Member int
		Reason string
	}
	// RecordVote is the hub's worker's result over exactly the present voters.
	RecordVote struct{ Vote Voted }
)

// wantedMember refuses a member that is not waiting.
func wantedMember(s *State, c GrantLease) error {
	m := s.Member(c.Member)
	switch {
	case m == nil:
		return invalid(c, "there is no member %d", c.Member)
	case m.Status != MemberWaiting:
		return conflict(c, "member %d is %s", m.Number, m.Status)
	}
	return nil
}

// memberUnder finds the member that a slot's command is about.
func memberUnder(s *State, c Command, slot domain.SlotID, epoch domain.Epoch) (*Lease, *Member, error) {
	l, err := leaseUnder(s, c, slot, epoch, UnitMember)
	if err != nil {
		return nil, nil, err
	}
	m := s.Member(l.Member)
	domain.Assert(m != nil && m.Slot == slot, "a member's lease and the member name each other")
	return l, m, nil
}

func checkDigests(c Command, ds ...domain.Digest) error {
	for _, d := range ds {
		if _, err := domain.ParseDigest(string(d)); err != nil {
			return invalid(c, "%q is not a digest", domain.Clip(string(d), 80))
		}
	}
	return nil
}

func decideCheckpoint(s *State, c RecordCheckpoint) ([]event.Data, error) {
	l, m, err := memberUnder(s, c, c.Slot, c.Epoch)
	if err != nil {
		return nil, err
	}
	spec := s.MemberSpec(m.Number)
	if c.Chunks < 0 || c.Chunks > TotalChunks(spec, s.Data) {
		return nil, invalid(c, "member %d has no chunk %d", m.Number, c.Chunks)
	}
	if c.Chunks < m.Chunks {
		return nil, nil // a late word on an earlier one
	}
	var facts []event.Data
	kept := *m
	if c.Chunks > m.Chunks && m.Weights == "" {
		if err := checkDigests(c, c.Blob); err != nil {
			return nil, err
		}
		if !IsLoss(c.Loss) {
			return nil, invalid(c, "a loss of %v", c.Loss)
		}
		if c.Bytes < 0 || c.Bytes > domain.MaxBlobBytes {
			return nil, invalid(c, "a checkpoint of %d bytes", c.Bytes)
		}
		kept.Chunks, kept.Samples, kept.Checkpoint = c.Chunks, MemberSamples(spec, s.Data, c.Chunks), c.Blob
		facts = append(facts, &MemberCheckpointed{Member: m.Number, Slot: c.Slot, Epoch: c.Epoch, Blob: c.Blob,
			From: m.Chunks, Chunks: c.Chunks, Samples: kept.Samples, Loss: c.Loss, Bytes: c.Bytes, Single: m.Single})
	}
	if l.Contribute == "" {
		return facts, nil
	}
	return append(facts, release(s, l, l.Contribute), requeued(&kept, l, l.Contribute)), nil
}

func decideMember(s *State, c RecordMember) ([]event.Data, error) {
	_, m, err := memberUnder(s, c, c.Slot, c.Epoch)
	if err != nil {
		return nil, err
	}
	if m.Weights != "" {
		return nil, nil
	}
	if err := checkDigests(c, c.Weights, c.Layout); err != nil {
		return nil, err
	}
	if c.Params < 1 || c.Params > MaxParams || !IsLoss(c.Loss) {
		return nil, invalid(c, "%d parameters, loss %v", c.Params, c.Loss)
	}
	spec := s.MemberSpec(m.Number)
	total := TotalChunks(spec, s.Data)
	return one(&MemberTrained{Member: m.Number, Single: m.Single, Slot: c.Slot, Epoch: c.Epoch, Weights: c.Weights, Layout: c.Layout, Params: c.Params,
		From: m.Chunks, Chunks: total, Samples: TotalSamples(spec, s.Data), Steps: MemberSteps(spec, s.Data, total), Loss: c.Loss})
}

// decideOutputs brings the member in. Figures that are no figures count as a failure of the trainer.
func decideOutputs(s *State, c RecordOutputs) ([]event.Data, error) {
	l, m, err := memberUnder(s, c, c.Slot, c.Epoch)
	if err != nil {
		return nil, err
	}
	if m.Weights == "" {
		return nil, conflict(c, "member %d is not trained", m.Number)
	}
	in := &MemberPredicted{Member: m.Number, Single: m.Single, Slot: c.Slot, Epoch: c.Epoch, Outputs: c.Outputs}
	if o := c.Outputs; o != nil {
		if err := checkDigests(c, o.Blob); err != nil {
			return nil, err
		}
		if o.Rows < 1 || o.Rows != s.Data.Heldout || o.Classes < 2 || o.Classes != s.Data.Classes || !(o.Accuracy >= 0 && o.Accuracy <= 1) || !IsLoss(o.Loss) {
			return memberFailed(s, l, fmt.Sprintf("outputs of %d rows and %d classes with accuracy %v and loss %v, for %d held-out rows and %d classes",
				o.Rows, o.Classes, o.Accuracy, o.Loss, s.Data.Heldout, s.Data.Classes), nil), nil
		}
		copied := *o
		in.Outputs = &copied
	} else {
		in.Why = reasonOr(c.Why, "its trainer gives no probabilities")
	}
	facts := []event.Data{in, release(s, l, "done")}
	if s.allSettled(m.Number) && len(s.Voters()) == 0 && (in.Outputs == nil || m.Single) {
		facts = append(facts, s.unvoted(m, s.Counted))
	}
	return facts, nil
}

// unvoted ends an ensemble in which nothing can be voted over; m comes in now, nil: nobody.
func (s *State) unvoted(m *Member, counted int64) *Completed {
	in, _ := s.MembersIn()
	if m != nil && !m.Single {
		in++
	}
	return &Completed{Samples: counted, Members: in}
}

// lost ends a member's lease by the fact and says what becomes of the member: it waits for another slot, or leaves the vote. Of other
// units it is the fact alone.
func lost(s *State, l *Lease, fact event.Data, reason string) ([]event.Data, error) {
	m := s.Member(l.Member)
	if l.Unit != UnitMember || m == nil || m.Settled() {
		return one(fact)
	}
	if s.Spec.Ensemble.OnLoss == LossDrop && m.Weights == "" && l.Contribute == "" {
		return append([]event.Data{fact}, dropped(s, m, reason, l.Slot)...), nil
	}
	return []event.Data{fact, requeued(m, l, reason)}, nil
}

func requeued(m *Member, l *Lease, reason string) *MemberRequeued {
	return &MemberRequeued{Member: m.Number, Single: m.Single, Slot: l.Slot, Epoch: l.Epoch, Reason: reason, Kept: m.Chunks, Samples: m.Samples, Checkpoint: m.Checkpoint}
}

// memberFailed counts an error of the trainer: after the last allowed one the member leaves the vote, since the others can do without.
func memberFailed(s *State, l *Lease, reason string, tail []string) []event.Data {
	m := s.Member(l.Member)
	failed := &TaskFailed{Slot: l.Slot, Epoch: l.Epoch, Unit: UnitMember, Error: domain.Clip(reason, domain.MaxReasonLength), Count: m.Fails + 1, Tail: tail}
	if failed.Count < MaxTaskFailures {
		return []event.Data{failed, requeued(m, l, "task failed")}
	}
	why := fmt.Sprintf("failed %d times, the last time on %s: %s", failed.Count, l.Slot, reason)
	return append([]event.Data{failed}, dropped(s, m, why, l.Slot)...)
}

// dropped takes m out, and what follows: too few members end the run, and the last one open begins the vote. The lease of
// the slot except has ended already in this decision.
func dropped(s *State, m *Member, reason string, except domain.SlotID) []event.Data {
	facts := []event.Data{&MemberDropped{Member: m.Number, Single: m.Single, Reason: domain.Clip(reason, domain.MaxReasonLength), Samples: m.Samples}}
	in, open := s.MembersIn()
	if !m.Single {
		open--
	}
	if least := s.Spec.Ensemble.Min; in+open < least {
		facts = append(facts, releaseAll(s, "failed", except)...)
		why := fmt.Sprintf("%d of %s can still come in, at least %d must: %s", in+open, plural(s.Spec.Ensemble.Members, "member"), least, reason)
		return append(facts, &Failed{Reason: domain.Clip(why, domain.MaxReasonLength)})
	}
	if s.allSettled(m.Number) && len(s.Voters()) == 0 {
		facts = append(facts, s.unvoted(nil, s.Counted-m.Samples))
	}
	return facts
}

func decideDrop(s *State, c DropMember) ([]event.Data, error) {
	if err := live(s, c); err != nil {
		return nil, err
	}
	m := s.Member(c.Member)
	if m == nil {
		return nil, invalid(c, "there is no member %d", c.Member)
	}
	if m.Settled() {
		return nil, nil
	}
	reason := reasonOr(c.Reason, "by the planner")
	var facts []event.Data
	if m.Slot != "" {
		facts = append(facts, release(s, s.Leases[m.Slot], reason))
	}
	return append(facts, dropped(s, m, reason, m.Slot)...), nil
}

// decideVote records the vote and ends the run. A vote over other members than the present voters is one that was overtaken.
func decideVote(s *State, c RecordVote) ([]event.Data, error) {
	if s.Ensemble != nil && s.Ensemble.Vote != nil {
		return nil, nil
	}
	if err := live(s, c); err != nil {
		return nil, err
	}
	voters, waits := s.NeedsVote()
	if !waits {
		return nil, conflict(c, "the run does not wait for its vote")
	}
	v := c.Vote
	if len(v.Members) != len(voters) {
		return nil, conflict(c, "%d members were voted over, %d are in", len(v.Members), len(voters))
	}
	for i, m := range voters {
		if v.Members[i].Member != m.Number || v.Members[i].Outputs != m.Outputs.Blob {
			return nil, conflict(c, "it was not made from member %d's outputs", m.Number)
		}
	}
	if err := checkResult(c, &v.Result, len(voters)); err != nil {
		return nil, err
	}
	in, _ := s.MembersIn()
	return []event.Data{&v, &Completed{Samples: s.Counted, Evaluated: true, Members: in}}, nil
}

// checkResult refuses figures that are none.
func checkResult(c Command, r *vote.Result, members int) error {
	if len(r.Weights) != members || len(r.Members) != members {
		return invalid(c, "%d weights and %d scores for %d members", len(r.Weights), len(r.Members), members)
	}
	for i, w := range r.Weights {
		if !finite(w) || w < 0 {
			return invalid(c, "weight %d is %v", i, w)
		}
	}
	if !(r.Temperature > 0) || !finite(r.Temperature) || !finite(r.Vote.NLL) || !(r.Vote.Accuracy >= 0 && r.Vote.Accuracy <= 1) {
		return invalid(c, "temperature %v, accuracy %v and loss %v are no vote", r.Temperature, r.Vote.Accuracy, r.Vote.NLL)
	}
	return nil
}

// recall asks the slot to keep its member in the store and give it back, so that another slot goes on.
func recall(l *Lease, c RequestContribution) ([]event.Data, error) {
	if l.Contribute != "" {
		return nil, nil
	}
	return one(&ContributionRequested{Slot: c.Slot, Epoch: l.Epoch, Member: l.Member, Reason: reasonOr(c.Reason, "planned")})
}
