package projections_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
	"tensorturn/domain/vote"
	"tensorturn/projections/runs"
)

// TestMembersFollowTheState holds the view of an ensemble against the state, under commands drawn by chance.
func TestMembersFollowTheState(t *testing.T) {
	phases := map[run.Phase]int{}
	muted, dropped := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		s := &ensembleStorm{r: r, view: runs.New()}
		s.submit()
		for range 120 {
			if s.state.Done() {
				break
			}
			s.step()
		}
		phases[s.state.Phase]++
		muted, dropped = muted+s.muted, dropped+s.dropped
	})
	if phases[run.PhaseCompleted] == 0 || phases[run.PhaseFailed] == 0 || muted == 0 || dropped == 0 {
		t.Errorf("the storm is too calm: %v, %d muted, %d dropped", phases, muted, dropped)
	}
}

type ensembleStorm struct {
	r              *rapid.T
	state          *run.State
	view           *runs.View
	seq            uint64
	muted, dropped int
}

func (s *ensembleStorm) submit() {
	n := rapid.IntRange(5, 40).Draw(s.r, "samples")
	members := rapid.IntRange(1, 4).Draw(s.r, "members")
	spec := run.Spec{Name: "storm", Mode: run.ModeEnsemble, Batch: 5, Chunk: 10, Epochs: 2, Ensemble: &run.Ensemble{Members: members,
		Min: rapid.IntRange(1, members).Draw(s.r, "min"), Single: rapid.Bool().Draw(s.r, "single")}}
	if rapid.Bool().Draw(s.r, "drop") {
		spec.Ensemble.OnLoss = run.LossDrop
	}
	data := run.Dataset{Blob: digest("data"), Samples: n, Heldout: 4, Features: 2, Classes: 2, Block: n}
	spec, err := run.Resolve(spec, data)
	if err != nil {
		s.r.Fatal(err)
	}
	s.do(run.Submit{Spec: spec, Data: data})
}

func (s *ensembleStorm) do(c run.Command) {
	facts, err := run.Decide(s.state, c)
	if err != nil {
		return // refusals are the aggregate's business
	}
	for _, f := range facts {
		s.seq++
		e := event.Envelope{Seq: s.seq, Kind: event.KindRun, Agg: "r-1", Time: time.Unix(int64(s.seq), 0), Data: f, Version: 1}
		s.state = run.Evolve(s.state, e)
		s.view.Apply(e)
		switch f.(type) {
		case *run.MemberMuted:
			s.muted++
		case *run.MemberDropped:
			s.dropped++
		}
	}
	s.compare(c)
}

// compare holds the view against the state after each decision.
func (s *ensembleStorm) compare(c run.Command) {
	got, _ := s.view.Get("r-1")
	type row struct {
		Status          run.MemberStatus
		Slot            domain.SlotID
		Chunks          int
		Samples         int64
		Outputs         bool
		Requeued, Saved int
	}
	var want, have []row
	for _, m := range s.state.Ensemble.Members {
		want = append(want, row{m.Status, m.Slot, m.Chunks, m.Samples, m.Outputs != nil, m.Requeued, m.Saved})
	}
	counted := int64(0)
	for _, m := range got.Members {
		have = append(have, row{m.Status, m.Slot, m.Chunks, m.Samples, m.Outputs != "", m.Requeued, m.Saved})
	}
	for _, slot := range got.Slots {
		counted += slot.Samples
	}
	l := s.state.Ledger()
	if d := cmp.Diff(want, have); d != "" || got.Phase != s.state.Phase || got.Ledger != (runs.Ledger{Expected: l.Expected, Counted: l.Counted}) || counted != l.Counted {
		s.r.Fatalf("after %T the view says %s, %+v, slots %d; the state %s, %+v\n%s", c, got.Phase, got.Ledger, counted, s.state.Phase, l, d)
	}
}

// step does one thing that may happen.
func (s *ensembleStorm) step() {
	slot := rapid.SampledFrom([]domain.SlotID{"a/0", "b/0"}).Draw(s.r, "slot")
	k := rapid.IntRange(1, len(s.state.Ensemble.Members)).Draw(s.r, "member")
	m := s.state.Member(k)
	var epoch domain.Epoch
	if l := s.state.LeaseOf(slot); l != nil {
		epoch = l.Epoch
		if h := s.state.Member(l.Member); h != nil {
			m = h
		}
	}
	blob := digest(fmt.Sprint("blob", s.seq))
	switch rapid.IntRange(0, 20).Draw(s.r, "what") {
	case 0, 1, 2, 3:
		s.do(run.GrantLease{Slot: slot, Unit: run.UnitMember, Member: k})
	case 4, 5, 6:
		s.do(run.RecordCheckpoint{Slot: slot, Epoch: epoch, Chunks: m.Chunks + rapid.IntRange(0, 2).Draw(s.r, "more"), Blob: blob, Loss: 1})
	case 7, 8, 9, 10:
		s.do(run.RecordMember{Slot: slot, Epoch: epoch, Weights: blob, Layout: blob, Params: 3, Loss: 1})
	case 11, 12, 13:
		s.do(run.RecordOutputs{Slot: slot, Epoch: epoch, Outputs: &run.MemberOutputs{Blob: blob, Rows: 4, Classes: 2, Accuracy: 1, Loss: 1}})
	case 14:
		s.do(run.RecordOutputs{Slot: slot, Epoch: epoch, Why: "none"})
	case 15:
		s.do(run.ExpireLease{Slot: slot, Reason: "silent", Silent: 9})
	case 16:
		s.do(run.RequestContribution{Slot: slot, Reason: "drain"})
	case 17:
		s.do(run.FailTask{Slot: slot, Epoch: epoch, Error: "boom"})
	case 18:
		s.do(run.DropMember{Member: k, Reason: "late"})
	case 19:
		if o := s.state.Member(k).Outputs; o != nil {
			s.do(run.MuteMember{Member: k, Outputs: o.Blob, Again: rapid.Bool().Draw(s.r, "again"), Reason: "lost"})
		}
	case 20:
		v := run.Voted{Result: vote.Result{Temperature: 1}}
		for _, m := range s.state.Voters() {
			v.Members = append(v.Members, run.VoteInput{Member: m.Number, Outputs: m.Outputs.Blob})
			v.Result.Weights, v.Result.Members = append(v.Result.Weights, 1), append(v.Result.Members, vote.Score{})
		}
		s.do(run.RecordVote{Vote: v})
	}
}
