package builtin

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"testing"

	"tensorturn/agent/trainer"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// memberJob is the job of one member of an ensemble on the digits.
func memberJob(t *testing.T, number int, edit func(*run.Spec)) trainer.Job {
	t.Helper()
	job := digitsJob(t, func(s *run.Spec) {
		s.Mode, s.Epochs, s.Ensemble = run.ModeEnsemble, 2, &run.Ensemble{}
		if edit != nil {
			edit(s)
		}
	})
	whole := job.Spec
	job.Member, job.Spec = number, run.MemberSpec(whole, number)
	job.Rows, job.Columns = run.Bootstrapped(whole, number, job.Dataset.Samples), run.FeaturesOf(whole, number, job.Dataset.Features)
	return job
}

func trainFrom(t *testing.T, tr *Trainer, from, to int) {
	t.Helper()
	for c := from; c < to; c++ {
		if _, err := tr.Train(t.Context(), domain.ChunkID(c), nil); err != nil {
			t.Fatal(err)
		}
	}
}

func saved(t *testing.T, save func(ctx context.Context, w *bytes.Buffer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := save(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func weightsOf(t *testing.T, tr *Trainer) []byte {
	return saved(t, func(ctx context.Context, w *bytes.Buffer) error { return tr.Save(ctx, w) })
}

// A member that was broken off anywhere and went on elsewhere has the bits of one that was not, whatever its recipe and
// optimizer.
func TestResumedMemberEqualsUninterrupted(t *testing.T) {
	for name, edit := range map[string]func(*run.Spec){
		"adamw": nil,
		"sgd":   func(s *run.Spec) { s.Optimizer.Kind = run.OptimizerSGD },
		"bootstrap and features": func(s *run.Spec) {
			s.Ensemble.Recipe.Bootstrap, s.Ensemble.Recipe.Features = true, 0.7
			s.Optimizer.WeightDecay = 0.01
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := memberJob(t, 3, edit)
			total := run.TotalChunks(job.Spec, job.Dataset)
			whole := started(t, job)
			trainFrom(t, whole, 0, total)
			want := weightsOf(t, whole)
			for _, at := range []int{1, total / 2, total - 1} {
				first := started(t, job)
				trainFrom(t, first, 0, at)
				state := saved(t, func(ctx context.Context, w *bytes.Buffer) error { return first.SaveState(ctx, w) })
				trainFrom(t, first, at, min(at+2, total)) // work that is lost with its machine
				second, err := Open(t.Context(), job)
				if err != nil {
					t.Fatal(err)
				}
				if err := second.(*Trainer).LoadState(t.Context(), bytes.NewReader(state)); err != nil {
					t.Fatal(err)
				}
				trainFrom(t, second.(*Trainer), at, total)
				if !bytes.Equal(weightsOf(t, second.(*Trainer)), want) {
					t.Errorf("resumed at chunk %d of %d: other weights", at, total)
				}
				if again := weightsOf(t, first); at+2 < total && bytes.Equal(again, want) {
					t.Error("the comparison cannot fail")
				}
			}
		})
	}
}

// A checkpoint without the optimizer's state would not do: the test above must be able to see it.
func TestWeightsAloneAreNoCheckpoint(t *testing.T) {
	job := memberJob(t, 1, nil)
	whole := started(t, job)
	trainFrom(t, whole, 0, 8)
	half := started(t, job)
	trainFrom(t, half, 0, 4)
	other := started(t, job)
	if err := other.Load(t.Context(), bytes.NewReader(weightsOf(t, half))); err != nil {
		t.Fatal(err)
	}
	trainFrom(t, other, 4, 8)
	if bytes.Equal(weightsOf(t, other), weightsOf(t, whole)) {
		t.Error("a member resumed from weights alone equals an uninterrupted one")
	}
}

func TestLoadStateRefuses(t *testing.T) {
	job := memberJob(t, 1, nil)
	tr := started(t, job)
	trainFrom(t, tr, 0, 2)
	state := saved(t, func(ctx context.Context, w *bytes.Buffer) error { return tr.SaveState(ctx, w) })
	before := weightsOf(t, tr)
	nan := bytes.Clone(state)
	copy(nan[len(nan)-4:], []byte{0, 0, 0xc0, 0x7f})
	for name, bad := range map[string][]byte{"empty": nil, "cut": state[:len(state)-1], "weights": before, "not finite": nan} {
		if err := tr.LoadState(t.Context(), bytes.NewReader(bad)); err == nil {
			t.Errorf("%s: no error", name)
		}
		if !bytes.Equal(weightsOf(t, tr), before) {
			t.Fatalf("%s: the weights have changed", name)
		}
	}
}

// Members differ by their recipes, and only where they should.
func TestRecipes(t *testing.T) {
	weights := map[string]string{}
	for name, c := range map[string]struct {
		member int
		edit   func(*run.Spec)
	}{
		"member 1":  {1, nil},
		"member 2":  {2, nil},
		"bootstrap": {1, func(s *run.Spec) { s.Ensemble.Recipe.Bootstrap = true }},
		"features":  {1, func(s *run.Spec) { s.Ensemble.Recipe.Features = 0.5 }},
		"rate":      {1, func(s *run.Spec) { s.Ensemble.Recipe.Grid.LR = []float64{0.01} }},
		"width":     {2, func(s *run.Spec) { s.Ensemble.Recipe.Grid.Hidden = [][]int{{64}, {32, 16}} }},
	} {
		tr := started(t, memberJob(t, c.member, c.edit))
		trainFrom(t, tr, 0, 3)
		w := string(weightsOf(t, tr))
		for other, v := range weights {
			if v == w {
				t.Errorf("%s equals %s", name, other)
			}
		}
		weights[name] = w
	}
}

// A member that does not see a column gives the same answer whatever stands in it, to anybody, by its weights alone.
func TestHiddenColumnsDoNotMatter(t *testing.T) {
	job := memberJob(t, 1, func(s *run.Spec) { s.Ensemble.Recipe.Features = 0.5; s.Optimizer.WeightDecay = 0.1 })
	tr := started(t, job)
	trainFrom(t, tr, 0, 6)
	plain := digitsJob(t, nil)
	reader, err := Open(t.Context(), plain)
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Load(t.Context(), bytes.NewReader(weightsOf(t, tr))); err != nil {
		t.Fatal(err)
	}
	row := make([]float32, 64)
	for i := range row {
		row[i] = float32(i % 17)
	}
	want, err := reader.Predict(t.Context(), row)
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.hidden) != 32 {
		t.Fatalf("%d columns hidden, want 32", len(tr.hidden))
	}
	other := append([]float32(nil), row...)
	for _, c := range tr.hidden {
		other[c] = 3
	}
	got, err := reader.Predict(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Error("hidden columns change the answer")
	}
	other[job.Columns[0]] += 9
	if got, _ = reader.Predict(t.Context(), other); fmt.Sprint(got) == fmt.Sprint(want) {
		t.Error("seen columns do not change the answer")
	}
}

// Outputs are the probabilities behind the figures of Evaluate, for every held-out row.
func TestOutputsAreThoseOfEvaluate(t *testing.T) {
	job := memberJob(t, 1, nil)
	tr := started(t, job)
	trainFrom(t, tr, 0, 6)
	m, err := tr.Evaluate(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	out, again, err := tr.Outputs(t.Context(), nil)
	if err != nil || again != m {
		t.Fatalf("%v, %v, %v", m, again, err)
	}
	rows := job.Dataset.Heldout
	if len(out.Probabilities) != rows*out.Classes || out.Classes != job.Dataset.Classes {
		t.Fatalf("%d values, %d classes", len(out.Probabilities), out.Classes)
	}
	for i := range rows {
		sum := 0.0
		for _, p := range out.Probabilities[i*out.Classes : (i+1)*out.Classes] {
			sum += float64(p)
		}
		if math.Abs(sum-1) > 1e-5 {
			t.Fatalf("row %d sums to %v", i, sum)
		}
	}
}
