package run_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

func ensembleSpec(edit func(*run.Spec)) run.Spec {
	s := run.Spec{Mode: run.ModeEnsemble, Data: run.Data{Path: "digits.csv"}, Ensemble: &run.Ensemble{}}
	if edit != nil {
		edit(&s)
	}
	return s
}

// Every default is written out, a resolved spec resolves to itself, and the caller's is left alone.
func TestEnsembleResolves(t *testing.T) {
	own := ensembleSpec(func(s *run.Spec) { s.Ensemble = nil })
	got, err := run.Resolve(own, dataset(1000))
	if err != nil {
		t.Fatal(err)
	}
	seed := true
	want := &run.Ensemble{Members: 5, Min: 3, OnLoss: run.LossRequeue, Vote: "mean", Every: 300, Recipe: run.Recipe{Seed: &seed, Features: 1}}
	if d := cmp.Diff(want, got.Ensemble); d != "" {
		t.Error(d)
	}
	if own.Ensemble != nil || got.Codec != "" || got.Round != (run.Round{}) || got.KeepEvery != 0 {
		t.Errorf("settings of fused runs are in force: %+v", got)
	}
	if again, err := run.Resolve(got, dataset(1000)); err != nil || !reflect.DeepEqual(again, got) {
		t.Errorf("%v\n%s", err, cmp.Diff(got, again))
	}
}

func TestEnsembleRefusesBadFields(t *testing.T) {
	no := false
	for name, c := range map[string]struct {
		edit func(*run.Spec)
		why  string
	}{
		"too many members":      {func(s *run.Spec) { s.Ensemble.Members = run.MaxMembers + 1 }, "ensemble.members is 257"},
		"negative members":      {func(s *run.Spec) { s.Ensemble.Members = -1 }, "ensemble.members is -1"},
		"min above members":     {func(s *run.Spec) { s.Ensemble.Min = 6 }, "ensemble.min_members is 6"},
		"on_loss":               {func(s *run.Spec) { s.Ensemble.OnLoss = "wait" }, "ensemble.on_loss"},
		"vote":                  {func(s *run.Spec) { s.Ensemble.Vote = "loudest" }, "ensemble.vote"},
		"deadline":              {func(s *run.Spec) { s.Ensemble.Deadline = -1 }, "ensemble.deadline_seconds"},
		"checkpoints":           {func(s *run.Spec) { s.Ensemble.Every = 0.01 }, "ensemble.checkpoint_seconds"},
		"features":              {func(s *run.Spec) { s.Ensemble.Recipe.Features = 1.5 }, "ensemble.recipe.features"},
		"equal members":         {func(s *run.Spec) { s.Ensemble.Recipe.Seed = &no }, "makes all members equal"},
		"a setting of fused":    {func(s *run.Spec) { s.Codec = run.CodecFP32 }, "codec is set"},
		"rounds":                {func(s *run.Spec) { s.Round.Chunks = 3 }, "round is set"},
		"grid, batch":           {func(s *run.Spec) { s.Ensemble.Recipe.Grid.Batch = []int{32, 48} }, "member 2: chunk is 128"},
		"grid, rate":            {func(s *run.Spec) { s.Ensemble.Recipe.Grid.LR = []float64{0.1, -1} }, "member 2: optimizer.lr"},
		"grid, width":           {func(s *run.Spec) { s.Ensemble.Recipe.Grid.Hidden = [][]int{{64}, {}} }, "member 2: model.hidden"},
		"grid too long":         {func(s *run.Spec) { s.Ensemble.Recipe.Grid.LR = slices.Repeat([]float64{0.1}, run.MaxGridValues+1) }, "65 values long"},
		"single beyond epochs":  {func(s *run.Spec) { s.Epochs, s.Ensemble.Single = run.MaxEpochs, true }, "epochs × ensemble.members"},
		"too many chunks":       {func(s *run.Spec) { s.Epochs = run.MaxEpochs }, "at most 1048576 are possible"},
		"ensemble without mode": {func(s *run.Spec) { s.Mode = run.ModeFused }, "ensemble is set, but the mode is fused"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run.Resolve(ensembleSpec(c.edit), dataset(1000))
			if domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%v, want %q", err, c.why)
			}
			if domain.NextOf(err) == "" {
				t.Errorf("%v says nothing to do", err)
			}
		})
	}
}

// A member follows from the spec and its number alone; members differ, and only in what the recipe says.
func TestMembersFollowFromTheSpec(t *testing.T) {
	s, err := run.Resolve(ensembleSpec(func(s *run.Spec) {
		s.Ensemble.Members = 7
		s.Ensemble.Single = true
		s.Ensemble.Recipe.Grid = run.Grid{LR: []float64{0.1, 0.2}, Hidden: [][]int{{8}, {16}, {32}}}
	}), dataset(1000))
	if err != nil {
		t.Fatal(err)
	}
	seeds := map[uint64]bool{}
	for k := 1; k <= 7; k++ {
		m := run.MemberSpec(s, k)
		if m.Seed == 0 || m.Seed >= 1<<31 || seeds[m.Seed] {
			t.Errorf("member %d has the seed %d", k, m.Seed)
		}
		seeds[m.Seed] = true
		if i := (k - 1) % 6; m.Optimizer.LR != s.Ensemble.Recipe.Grid.LR[i%2] || !slices.Equal(m.Model.Hidden, s.Ensemble.Recipe.Grid.Hidden[i/2]) {
			t.Errorf("member %d has the rate %v and the widths %v", k, m.Optimizer.LR, m.Model.Hidden)
		}
		if !reflect.DeepEqual(m, run.MemberSpec(s, k)) {
			t.Error("a member is not repeatable")
		}
	}
	if one := run.MemberSpec(s, 8); one.Epochs != 7*s.Epochs || one.Seed != s.Seed || one.Optimizer.LR != s.Optimizer.LR {
		t.Errorf("the single model is %+v", one)
	}
}

// Samples and columns of a recipe are drawn once and for ever: these are part of every recorded run.
func TestDrawsOfARecipe(t *testing.T) {
	s, err := run.Resolve(ensembleSpec(func(s *run.Spec) { s.Ensemble.Recipe.Bootstrap, s.Ensemble.Recipe.Features = true, 0.5 }), dataset(10))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := run.Bootstrapped(s, 1, 10), []int{1, 1, 3, 8, 8, 2, 3, 9, 1, 4}; !slices.Equal(got, want) {
		t.Errorf("member 1 draws %v", got)
	}
	if got, want := run.FeaturesOf(s, 1, 9), []int{0, 1, 2, 4, 7}; !slices.Equal(got, want) {
		t.Errorf("member 1 sees %v", got)
	}
	if got := run.MemberSpec(s, 1).Seed; got != 1545280931 {
		t.Errorf("member 1 has the seed %d", got)
	}
	for k := 1; k <= 5; k++ {
		rows, columns := run.Bootstrapped(s, k, 1000), run.FeaturesOf(s, k, 9)
		distinct := map[int]bool{}
		for _, r := range rows {
			distinct[r] = true
		}
		if n := len(distinct); n < 590 || n > 675 { // 1 − 1/e of 1000 is 632, with a deviation of 10
			t.Errorf("member %d draws %d distinct rows of 1000", k, n)
		}
		if len(columns) != 5 || !slices.IsSorted(columns) {
			t.Errorf("member %d sees the columns %v", k, columns)
		}
	}
	if run.Bootstrapped(s, 6, 10) != nil || run.FeaturesOf(s, 6, 9) != nil {
		t.Error("the single model has a recipe")
	}
}

// The audit sees a ledger, a lineage or a holder that is wrong.
func TestAuditSeesBrokenMembers(t *testing.T) {
	for name, harm := range map[string]func(*run.State){
		"ledger":            func(s *run.State) { s.Counted++ },
		"a chunk twice":     func(s *run.State) { s.Member(1).Segments[0].From = 1 },
		"position":          func(s *run.State) { s.Member(1).Chunks++ },
		"no checkpoint":     func(s *run.State) { s.Member(1).Checkpoint = "" },
		"holder":            func(s *run.State) { s.Member(1).Slot = "b/0" },
		"two of one member": func(s *run.State) { s.Leases["b/0"].Member = 1 },
		"in without all":    func(s *run.State) { s.Member(1).Status = run.MemberIn },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, run.Spec{Mode: run.ModeEnsemble, Batch: 10, Chunk: 10, Epochs: 1, Ensemble: &run.Ensemble{Members: 2}}, dataset(30))
			w.must(run.GrantLease{Slot: "a/0", Unit: run.UnitMember, Member: 1}, run.GrantLease{Slot: "b/0", Unit: run.UnitMember, Member: 2},
				run.RecordCheckpoint{Slot: "a/0", Epoch: 2, Chunks: 2, Blob: digest("c0"), Loss: 1})
			harm(w.state)
			if domain.KindOf(run.Audit(w.state)) != domain.KindIntegrity {
				t.Error("the audit sees nothing")
			}
		})
	}
}

// A checkpoint's size is its slot's word: at the limit it is written down, beyond it or below nothing it is refused.
func TestSizesOfCheckpoints(t *testing.T) {
	for _, c := range []struct {
		bytes int64
		kept  bool
	}{{0, true}, {domain.MaxBlobBytes, true}, {domain.MaxBlobBytes + 1, false}, {-1, false}} {
		w := newWorld(t, run.Spec{Mode: run.ModeEnsemble, Batch: 10, Chunk: 10, Epochs: 1, Ensemble: &run.Ensemble{Members: 2}}, dataset(30))
		w.must(run.GrantLease{Slot: "a/0", Unit: run.UnitMember, Member: 1})
		facts, err := run.Decide(w.state, run.RecordCheckpoint{Slot: "a/0", Epoch: 2, Chunks: 2, Blob: digest("c0"), Loss: 1, Bytes: c.bytes})
		if !c.kept {
			if domain.KindOf(err) != domain.KindInvalid {
				t.Errorf("%d bytes: %v", c.bytes, err)
			}
			continue
		}
		if k, ok := facts[0].(*run.MemberCheckpointed); err != nil || !ok || k.Bytes != c.bytes {
			t.Errorf("%d bytes: %+v, %v", c.bytes, facts, err)
		}
	}
}
