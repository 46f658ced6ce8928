package runs

import (
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
	"tensorturn/domain/vote"
)

// Member is one model of an ensemble as people see it.
type Member struct {
	Number   int              `json:"number"`
	Single   bool             `json:"single,omitempty"` // compared, without a vote
	Status   run.MemberStatus `json:"status"`
	Slot     domain.SlotID    `json:"slot,omitempty"` // that holds it now
	Seed     uint64           `json:"seed"`
	Chunks   int              `json:"chunks"` // in its newest checkpoint
	Of       int              `json:"chunks_expected"`
	Samples  int64            `json:"samples"` // in its newest checkpoint
	Total    int64            `json:"samples_expected"`
	Saved    int              `json:"checkpoints"`
	Requeued int              `json:"requeued"`
	Stretch  []Stretch        `json:"trained_by"` // who trained what of it
	Loss     float64          `json:"loss"`       // training loss at the newest checkpoint
	Weights  domain.Digest    `json:"weights,omitempty"`
	Params   int64            `json:"params,omitempty"`
	Outputs  domain.Digest    `json:"outputs,omitempty"`  // probabilities on the held-out rows
	Accuracy float64          `json:"accuracy,omitempty"` // of its own trainer, on all held-out rows
	Held     float64          `json:"held_out_loss,omitempty"`
	Unvoted  string           `json:"unvoted,omitempty"` // why it has no vote
	Reason   string           `json:"reason,omitempty"`  // why it was dropped
}

// Stretch is what one slot trained of a member.
type Stretch struct {
	Slot    domain.SlotID `json:"slot"`
	From    int           `json:"from"` // chunk
	To      int           `json:"to"`
	Samples int64         `json:"samples"`
}

// Vote is the members' common answer on held-out data.
type Vote struct {
	Members     []run.VoteInput `json:"members"` // by number; the lists of the result have this order
	Single      *run.VoteInput  `json:"single,omitempty"`
	vote.Result `json:"result"`
}

// beginMembers makes the members of an ensemble, all waiting.
func (r *Run) beginMembers() {
	e := r.Spec.Ensemble
	last := e.Members
	if e.Single {
		last++
	}
	for k := 1; k <= last; k++ {
		spec := run.MemberSpec(r.Spec, k)
		r.Members = append(r.Members, &Member{Number: k, Single: k > e.Members, Status: run.MemberWaiting, Seed: spec.Seed,
			Of: run.TotalChunks(spec, r.Data), Total: run.TotalSamples(spec, r.Data), Stretch: []Stretch{}})
	}
	r.Phase, r.Rounds.Planned = run.PhaseTraining, 0
	r.recount()
}

// Member is the member with the number, nil when there is none.
func (r *Run) Member(number int) *Member {
	if number < 1 || number > len(r.Members) {
		return nil
	}
	return r.Members[number-1]
}

// recount sums up the ledger of an ensemble and sees whether it waits for its vote.
func (r *Run) recount() {
	r.Ledger = Ledger{}
	open, voters := 0, 0
	for _, m := range r.Members {
		switch {
		case m.Status == run.MemberGone:
			continue
		case m.Status != run.MemberIn:
			open++
		case !m.Single && m.Outputs != "":
			voters++
		}
		r.Ledger.Expected += m.Total
		r.Ledger.Counted += m.Samples
	}
	if r.Phase.Ended() {
		return
	}
	r.Phase = run.PhaseTraining
	if open == 0 && voters > 0 {
		r.Phase = run.PhaseVoting
	}
}

// leased notes who trains the member.
func (r *Run) leased(d *run.LeaseGranted) {
	if m := r.Member(d.Member); m != nil && d.Unit == run.UnitMember {
		m.Status, m.Slot = run.MemberTraining, d.Slot
	}
}

// left takes the slot from the member it holds.
func (r *Run) left(slot domain.SlotID) {
	for _, m := range r.Members {
		if m.Slot != slot {
			continue
		}
		m.Slot = ""
		if m.Status == run.MemberTraining {
			m.Status = run.MemberWaiting
		}
	}
}

// seen adds what a slot has trained of the member. Stretches of one slot that follow each other are one.
func (v *View) seen(r *Run, m *Member, slot domain.SlotID, chunks int, samples int64) {
	g := Stretch{Slot: slot, From: m.Chunks, To: chunks, Samples: samples - m.Samples}
	s := v.slot(r, slot)
	s.Chunks += g.To - g.From
	s.Samples += g.Samples
	m.Chunks, m.Samples = chunks, samples
	if g.To == g.From {
		return
	}
	if n := len(m.Stretch); n > 0 && m.Stretch[n-1].Slot == slot {
		m.Stretch[n-1].To, m.Stretch[n-1].Samples = g.To, m.Stretch[n-1].Samples+g.Samples
		return
	}
	m.Stretch = append(m.Stretch, g)
}

func (v *View) applyMember(r *Run, e event.Envelope) {
	switch d := e.Data.(type) {
	case *run.MemberCheckpointed:
		if m := r.Member(d.Member); m != nil {
			v.seen(r, m, d.Slot, d.Chunks, d.Samples)
			m.Loss, r.Loss = d.Loss, d.Loss
			m.Saved++
		}
	case *run.MemberTrained:
		if m := r.Member(d.Member); m != nil {
			v.seen(r, m, d.Slot, d.Chunks, d.Samples)
			m.Weights, m.Params, m.Loss = d.Weights, d.Params, d.Loss
			r.Loss = d.Loss
		}
	case *run.MemberPredicted:
		if m := r.Member(d.Member); m != nil {
			m.Status, m.Unvoted = run.MemberIn, d.Why
			if o := d.Outputs; o != nil {
				m.Outputs, m.Accuracy, m.Held = o.Blob, o.Accuracy, o.Loss
			}
		}
	case *run.MemberMuted:
		if m := r.Member(d.Member); m != nil {
			m.Outputs = ""
			if d.Again {
				m.Status = run.MemberWaiting
			} else {
				m.Unvoted = d.Reason
			}
		}
	case *run.MemberRequeued:
		if m := r.Member(d.Member); m != nil {
			m.Requeued++
		}
	case *run.MemberDropped:
		if m := r.Member(d.Member); m != nil {
			m.Status, m.Reason = run.MemberGone, d.Reason
			for _, g := range m.Stretch {
				v.slot(r, g.Slot).Samples -= g.Samples
			}
		}
	case *run.Voted:
		r.Vote = &Vote{Members: d.Members, Single: d.Single, Result: d.Result}
	default:
		return
	}
	r.recount()
}

// copyMembers copies what later events change.
func copyMembers(ms []*Member) []*Member {
	if ms == nil {
		return nil
	}
	out := make([]*Member, len(ms))
	for i, m := range ms {
		c := *m
		c.Stretch = slices.Clone(m.Stretch)
		out[i] = &c
	}
	return out
}
