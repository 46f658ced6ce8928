package trainertest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/agent/trainer"
	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

// Suite checks the promises of trainer.Trainer. newJob gives a fresh job of the same run each time; the run must have at
// least two chunks of at least two steps, and held-out samples.
func Suite(t *testing.T, open trainer.Factory, newJob func(t *testing.T) trainer.Job) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *bench)
	}{
		{"layout is canonical and what is saved", layout},
		{"init is the same every time", initRepeats},
		{"load then save gives the same bytes", roundTrip},
		{"load leaves optimizer state untouched", loadKeepsOptimizer},
		{"a refused load leaves the weights", refusedLoad},
		{"train reports every step", progress},
		{"a chunk that does not exist is refused", foreignChunk},
		{"evaluate changes nothing", evaluateChangesNothing},
		{"predict gives probabilities", predict},
		{"an ended context stops everything", endedContext},
		{"cancel stops between two steps", cancelled},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, &bench{open: open, job: newJob}) })
	}
}

// bench opens trainers for a test.
type bench struct {
	open trainer.Factory
	job  func(*testing.T) trainer.Job
}

// fresh opens a trainer with initial weights.
func (b *bench) fresh(t *testing.T) trainer.Trainer {
	t.Helper()
	tr, err := b.open(t.Context(), b.job(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := tr.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tr
}

func save(t *testing.T, tr trainer.Trainer) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := tr.Save(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func load(t *testing.T, tr trainer.Trainer, weights []byte) {
	t.Helper()
	if err := tr.Load(t.Context(), bytes.NewReader(weights)); err != nil {
		t.Fatal(err)
	}
}

func train(t *testing.T, tr trainer.Trainer, c domain.ChunkID) trainer.Result {
	t.Helper()
	r, err := tr.Train(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func layout(t *testing.T, b *bench) {
	tr := b.fresh(t)
	if !safetensors.Canonical(tr.Layout()) {
		t.Error("the layout is not in canonical order")
	}
	r, err := safetensors.NewReader(bytes.NewReader(save(t, tr)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tr.Layout(), r.Tensors()); diff != "" {
		t.Error(diff)
	}
}

func initRepeats(t *testing.T, b *bench) {
	tr := b.fresh(t)
	first := save(t, tr)
	train(t, tr, 0)
	if bytes.Equal(first, save(t, tr)) {
		t.Fatal("training changes nothing")
	}
	if err := tr.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, save(t, tr)) {
		t.Error("a second Init gives other weights")
	}
	if !bytes.Equal(first, save(t, b.fresh(t))) {
		t.Error("another trainer's Init gives other weights")
	}
}

func roundTrip(t *testing.T, b *bench) {
	tr := b.fresh(t)
	train(t, tr, 0)
	trained := save(t, tr)
	other := b.fresh(t)
	load(t, other, trained)
	if !bytes.Equal(trained, save(t, other)) {
		t.Error("loaded weights are saved differently")
	}
}

// A trainer that loads its own weights between chunks goes on as if nothing had happened: the ground of the exactness
// proof. One with fresh state from the same weights does not, if it keeps optimizer state at all.
func loadKeepsOptimizer(t *testing.T, b *bench) {
	straight, reloaded := b.fresh(t), b.fresh(t)
	train(t, straight, 0)
	train(t, straight, 1)
	train(t, reloaded, 0)
	load(t, reloaded, save(t, reloaded))
	train(t, reloaded, 1)
	if !bytes.Equal(save(t, straight), save(t, reloaded)) {
		t.Error("Load disturbed the training")
	}
}

func refusedLoad(t *testing.T, b *bench) {
	tr := b.fresh(t)
	before := save(t, tr)
	name := tr.Layout()[0].Name
	nan := bytes.Clone(before)
	copy(nan[len(nan)-4:], []byte{0, 0, 0xc0, 0x7f})
	for _, bad := range []struct {
		name  string
		bytes []byte
	}{
		{"truncated", before[:len(before)-1]},
		{"trailing byte", append(bytes.Clone(before), 0)},
		{"empty", nil},
		{"not finite", nan},
		{"other layout", bytes.Replace(before, []byte(name), []byte("!"+name[1:]), 1)},
	} {
		if err := tr.Load(t.Context(), bytes.NewReader(bad.bytes)); err == nil {
			t.Errorf("%s weights were loaded", bad.name)
		}
		if !bytes.Equal(before, save(t, tr)) {
			t.Fatalf("%s weights left their mark", bad.name)
		}
	}
}

func progress(t *testing.T, b *bench) {
	job, tr := b.job(t), b.fresh(t)
	steps, samples, loss := 0, 0, 0.0
	r, err := tr.Train(t.Context(), 1, func(p trainer.Progress) {
		steps++
		samples += p.Samples
		loss += p.Loss * float64(p.Samples)
	})
	if err != nil {
		t.Fatal(err)
	}
	if steps != r.Steps || steps != run.ChunkSteps(job.Spec, job.Dataset, 1) || samples != run.ChunkSamples(job.Spec, job.Dataset, 1) {
		t.Errorf("%d steps of %d samples reported, result says %d", steps, samples, r.Steps)
	}
	if mean := loss / float64(samples); r.Loss < mean*0.999 || r.Loss > mean*1.001 {
		t.Errorf("the result's loss is %v, that of the steps %v", r.Loss, mean)
	}
}

func foreignChunk(t *testing.T, b *bench) {
	job, tr := b.job(t), b.fresh(t)
	for _, c := range []int{-1, run.TotalChunks(job.Spec, job.Dataset)} {
		if _, err := tr.Train(t.Context(), domain.ChunkID(c), nil); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("chunk %d gave %v", c, err)
		}
	}
}

func evaluateChangesNothing(t *testing.T, b *bench) {
	job, plain, measured := b.job(t), b.fresh(t), b.fresh(t)
	train(t, plain, 0)
	train(t, plain, 1)
	train(t, measured, 0)
	first, err := measured.Evaluate(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := measured.Evaluate(t.Context(), nil); err != nil || first != second {
		t.Errorf("measured %v, then %v, %v", first, second, err)
	}
	if first.Samples != job.Dataset.Heldout {
		t.Errorf("%d of %d held-out samples were measured", first.Samples, job.Dataset.Heldout)
	}
	train(t, measured, 1)
	if !bytes.Equal(save(t, plain), save(t, measured)) {
		t.Error("Evaluate disturbed the training")
	}
}

func predict(t *testing.T, b *bench) {
	job, tr := b.job(t), b.fresh(t)
	const rows = 3
	out, err := tr.Predict(t.Context(), make([]float32, rows*job.Dataset.Features))
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != rows*job.Dataset.Classes {
		t.Fatalf("%d values for %d rows of %d classes", len(out), rows, job.Dataset.Classes)
	}
	for r := range rows {
		sum := float32(0)
		for _, p := range out[r*job.Dataset.Classes : (r+1)*job.Dataset.Classes] {
			sum += p
		}
		if !(sum > 0.999 && sum < 1.001) {
			t.Errorf("row %d sums to %v", r, sum)
		}
	}
	if _, err := tr.Predict(t.Context(), make([]float32, job.Dataset.Features+1)); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("a broken row gave %v", err)
	}
}

func endedContext(t *testing.T, b *bench) {
	tr := b.fresh(t)
	weights := save(t, tr)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func() error{
		"Init":     func() error { return tr.Init(ended) },
		"Load":     func() error { return tr.Load(ended, bytes.NewReader(weights)) },
		"Save":     func() error { return tr.Save(ended, new(bytes.Buffer)) },
		"Train":    func() error { _, err := tr.Train(ended, 0, nil); return err },
		"Evaluate": func() error { _, err := tr.Evaluate(ended, nil); return err },
		"Predict":  func() error { _, err := tr.Predict(ended, make([]float32, b.job(t).Dataset.Features)); return err },
		"Open":     func() error { _, err := b.open(ended, b.job(t)); return err },
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s gave %v", name, err)
		}
	}
}

func cancelled(t *testing.T, b *bench) {
	tr := b.fresh(t)
	ctx, cancel := context.WithCancel(t.Context())
	steps := 0
	r, err := tr.Train(ctx, 0, func(trainer.Progress) {
		steps++
		cancel()
	})
	if !errors.Is(err, context.Canceled) || steps != 1 || r.Steps != 1 {
		t.Errorf("%d steps after the cancel, result %d, error %v", steps-1, r.Steps, err)
	}
}
