package builtin

import (
	"bytes"
	"math"
	"runtime"
	"slices"
	"testing"

	"tensorturn/agent/trainer"
	"tensorturn/domain"
	"tensorturn/domain/dataset"
	"tensorturn/domain/permute"
	"tensorturn/domain/run"
)

// sentences is a text that can be learnt: after two bytes the third is known nearly always.
func sentences(n int) []byte {
	words := []string{"the ", "cat ", "sat ", "on ", "a ", "mat. "}
	s := permute.NewSource(7)
	var out []byte
	for len(out) < n {
		out = append(out, words[int(s.Float64()*float64(len(words)))]...)
	}
	return out[:n]
}

// textJob packs a text for a spec.
func textJob(t testing.TB, text []byte, edit func(*run.Spec)) trainer.Job {
	t.Helper()
	spec := run.Spec{Data: run.Data{Format: run.FormatText, Holdout: 0.1}}
	if edit != nil {
		edit(&spec)
	}
	spec, err := run.Defaults(spec)
	if err != nil {
		t.Fatal(err)
	}
	var raw bytes.Buffer
	facts, err := dataset.PackText(text, TextOptions(spec.Model), spec.Data.Holdout, spec.Seed, &raw)
	if err != nil {
		t.Fatal(err)
	}
	return jobOf(t, facts, raw.Bytes(), func(s *run.Spec) { *s = spec })
}

func TestTextIsLearnt(t *testing.T) {
	job := textJob(t, sentences(20_000), func(s *run.Spec) { s.Epochs, s.Batch = 2, 64 })
	tr := started(t, job)
	before, err := tr.Evaluate(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for c := range run.TotalChunks(job.Spec, job.Dataset) {
		if _, err := tr.Train(t.Context(), domain.ChunkID(c), nil); err != nil {
			t.Fatal(err)
		}
	}
	after, err := tr.Evaluate(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	// The source has log(6) nats a word of 3.8 bytes: 0.47 nats a byte.
	if before.Loss < 4 || after.Loss > 0.6 || after.Accuracy < 0.7 || after.Samples != job.Dataset.Heldout {
		t.Errorf("loss %v before, %v after, accuracy %v on %d bytes", before.Loss, after.Loss, after.Accuracy, after.Samples)
	}
	p, err := tr.Predict(t.Context(), []float32{'a', 't', ' ', 'o', 'n', ' ', 't', 'h'})
	if err != nil || len(p) != dataset.Bytes || slices.Index(p, slices.Max(p)) != 'e' {
		t.Errorf("behind \"th\" comes %q, %v", rune(slices.Index(p, slices.Max(p))), err)
	}
	for _, bad := range []float32{-1, 256, 0.5, float32(math.Inf(1))} {
		if _, err := tr.Predict(t.Context(), []float32{bad, 't', ' ', 'o', 'n', ' ', 't', 'h'}); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%v is taken for a byte: %v", bad, err)
		}
	}
}

// The same bits at any number of cores.
func TestTextIsExact(t *testing.T) {
	weights := func(procs int) []float32 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		tr := started(t, textJob(t, sentences(5000), func(s *run.Spec) { s.Batch, s.Chunk = 128, 1024 }))
		if _, err := tr.Train(t.Context(), 0, nil); err != nil {
			t.Fatal(err)
		}
		return tr.model.params.Data
	}
	one := weights(1)
	for _, procs := range []int{2, 8} {
		if !slices.Equal(one, weights(procs)) {
			t.Errorf("%d processors give other bits than one", procs)
		}
	}
}

// Names are torch's for Sequential(Embedding, Flatten, Linear, ReLU, Linear).
func TestTextLayout(t *testing.T) {
	var names []string
	for _, tensor := range started(t, textJob(t, sentences(5000), nil)).Layout() {
		names = append(names, tensor.String())
	}
	want := []string{`"0.weight" F32[256,16]`, `"2.bias" F32[128]`, `"2.weight" F32[128,128]`, `"4.bias" F32[256]`, `"4.weight" F32[256,128]`}
	if !slices.Equal(names, want) {
		t.Errorf("tensors %q", names)
	}
}

// What domain/run reckons of a model before it is made is what it has.
func TestParametersAreReckoned(t *testing.T) {
	text := sentences(4000)
	for name, edit := range map[string]func(*run.Spec){
		"default":   nil,
		"two deep":  func(s *run.Spec) { s.Model.Hidden = []int{7, 5} },
		"one byte":  func(s *run.Spec) { s.Model.Context, s.Model.Embedding = 1, 3 },
		"one value": func(s *run.Spec) { s.Model.Context, s.Model.Embedding = 12, 1 },
	} {
		job := textJob(t, text, edit)
		facts := dataset.Facts{Predicts: 1, Columns: make([]string, job.Dataset.Features), Classes: make([]string, job.Dataset.Classes)}
		m, err := newModel(job.Spec.Model, facts, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := run.Parameters(&job.Spec, &job.Dataset), int64(len(m.params.Data)); got != want {
			t.Errorf("%s: %d parameters are reckoned, the model has %d", name, got, want)
		}
	}
	for name, facts := range map[string]dataset.Facts{
		"classes":    {Columns: make([]string, 9), Classes: make([]string, 3)},
		"regression": {Columns: make([]string, 9), Task: run.TaskRegression},
	} {
		spec := run.Spec{Trainer: run.Builtin, Model: run.Model{Kind: run.ModelMLP, Hidden: []int{7, 5}}}
		m, err := newModel(spec.Model, facts, 1)
		if err != nil {
			t.Fatal(err)
		}
		data := facts.Run("")
		if got, want := run.Parameters(&spec, &data), int64(len(m.params.Data)); got != want {
			t.Errorf("%s: %d parameters are reckoned, the model has %d", name, got, want)
		}
	}
}
