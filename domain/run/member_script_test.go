package run_test

import (
	"fmt"
	"strings"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/domain/vote"
)

// ensemble sets one argument of a story's run about members.
func ensemble(t *testing.T, spec *run.Spec, key string, vals []string) {
	spec.Mode = run.ModeEnsemble
	if spec.Ensemble == nil {
		spec.Ensemble = &run.Ensemble{}
	}
	e := spec.Ensemble
	switch key {
	case "members":
		e.Members = number(t, vals[0])
	case "min":
		e.Min = number(t, vals[0])
	case "loss":
		e.OnLoss = run.OnLoss(vals[0])
	case "single":
		e.Single = true
	case "bootstrap":
		e.Recipe.Bootstrap = true
	}
}

// members turns the lines about members into commands.
func (p *player) members(a args) []run.Command {
	one := func(c run.Command) []run.Command { return []run.Command{c} }
	switch a.word {
	case "checkpoint": // checkpoint SLOT CHUNKS
		return one(run.RecordCheckpoint{Slot: a.slot(0), Epoch: p.under(a), Chunks: number(a.t, a.vals[1]), Blob: digest(fmt.Sprintf("c%s%x", a.vals[1], len(p.log))), Loss: a.float("loss", 0.5)})
	case "member": // member SLOT
		return one(p.world.member(a.slot(0), p.under(a)))
	case "outputs": // outputs SLOT
		return one(p.world.outputs(a.slot(0), p.under(a), a.float("accuracy", 0.9)))
	case "mute": // mute SLOT WHY
		return one(run.RecordOutputs{Slot: a.slot(0), Epoch: p.under(a), Why: a.rest(1)})
	case "drop": // drop MEMBER WHY
		return one(run.DropMember{Member: number(a.t, a.vals[0]), Reason: a.rest(1)})
	case "mutes", "loses": // the hub cannot vote over MEMBER's outputs: they are none, or lost
		m := p.world.state.Member(number(a.t, a.vals[0]))
		c := run.MuteMember{Member: m.Number, Again: a.word == "loses", Reason: a.rest(1)}
		if m.Outputs != nil {
			c.Outputs = m.Outputs.Blob
		}
		return one(c)
	case "vote":
		return one(p.world.vote())
	}
	a.t.Fatalf("no command %q", a.word)
	return nil
}

func (w *world) member(s domain.SlotID, epoch domain.Epoch) run.RecordMember {
	return run.RecordMember{Slot: s, Epoch: epoch, Weights: digest(fmt.Sprintf("aa%x", len(w.log))), Layout: digest("1a"), Params: 10, Loss: 0.1}
}

func (w *world) outputs(s domain.SlotID, epoch domain.Epoch, accuracy float64) run.RecordOutputs {
	return run.RecordOutputs{Slot: s, Epoch: epoch, Outputs: &run.MemberOutputs{Blob: digest(fmt.Sprintf("0a%x", len(w.log))), Rows: w.state.Data.Heldout,
		Classes: w.state.Data.Classes, Accuracy: accuracy, Loss: 0.3}}
}

// vote is the vote by mean over the present voters.
func (w *world) vote() run.RecordVote {
	v := run.Voted{Result: vote.Result{Asked: vote.Mean, Rule: vote.Mean, Temperature: 1, Rows: w.state.Data.Heldout, TestRows: w.state.Data.Heldout,
		Vote: vote.Score{Accuracy: 0.95, NLL: 0.2, ScaledNLL: 0.2}, Mean: vote.Score{Accuracy: 0.9}}}
	for _, m := range w.state.Voters() {
		v.Members = append(v.Members, run.VoteInput{Member: m.Number, Outputs: m.Outputs.Blob})
		v.Result.Weights, v.Result.Members = append(v.Result.Weights, 1), append(v.Result.Members, vote.Score{})
	}
	return run.RecordVote{Vote: v}
}

// showMembers draws an ensemble.
func showMembers(s *run.State) string {
	var b strings.Builder
	l := s.Ledger()
	fmt.Fprintf(&b, ", %d of %d samples counted\n", l.Counted, l.Expected)
	for i := range s.Ensemble.Members {
		m := &s.Ensemble.Members[i]
		what := "member"
		if m.Single {
			what = "single"
		}
		fmt.Fprintf(&b, "  %s %d %s", what, m.Number, m.Status)
		if m.Slot != "" {
			fmt.Fprintf(&b, " on %s under %d", m.Slot, s.LeaseOf(m.Slot).Epoch)
		}
		fmt.Fprintf(&b, ": chunk %d, %d samples", m.Chunks, m.Samples)
		for _, g := range m.Segments {
			fmt.Fprintf(&b, ", %d–%d by %s", g.From, g.To, g.Slot)
		}
		if m.Reason != "" {
			fmt.Fprintf(&b, " (%s)", m.Reason)
		}
		b.WriteString("\n")
	}
	return b.String()
}
