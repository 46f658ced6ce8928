package builtin

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/trainertest"
	"tensorturn/domain"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
)

func TestSuite(t *testing.T) {
	facts, raw := digits(t)
	for _, kind := range []string{run.OptimizerAdamW, run.OptimizerSGD} {
		t.Run(kind, func(t *testing.T) {
			trainertest.Suite(t, Open, func(t *testing.T) trainer.Job {
				return jobOf(t, facts, raw, func(s *run.Spec) { s.Optimizer.Kind = kind })
			})
		})
	}
}

func TestDigitsReach95Percent(t *testing.T) {
	for _, kind := range []string{run.OptimizerAdamW, run.OptimizerSGD} {
		t.Run(kind, func(t *testing.T) {
			job := digitsJob(t, func(s *run.Spec) { s.Optimizer.Kind = kind })
			m, err := trainertest.Plain(t.Context(), Open, job, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("accuracy %.4f, loss %.4f on %d samples", m.Accuracy, m.Loss, m.Samples)
			if m.Accuracy < 0.95 || m.Samples != 359 || m.Loss > 0.25 {
				t.Errorf("accuracy %.4f, loss %.4f on %d samples", m.Accuracy, m.Loss, m.Samples)
			}
		})
	}
}

// The wide layers make gonum split its products over goroutines; the narrow ones do not.
func TestBitsDoNotDependOnGOMAXPROCS(t *testing.T) {
	for name, hidden := range map[string][]int{"narrow": {64}, "wide": {300, 130}} {
		t.Run(name, func(t *testing.T) {
			sums := map[int][32]byte{}
			for _, procs := range []int{1, 2, 8} {
				sums[procs] = trainedWith(t, procs, hidden)
			}
			if sums[1] != sums[2] || sums[1] != sums[8] {
				t.Errorf("weights differ: %x", sums)
			}
		})
	}
}

// trainedWith is the digest of the weights after a few steps at a GOMAXPROCS.
func trainedWith(t *testing.T, procs int, hidden []int) [32]byte {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	tr := started(t, digitsJob(t, func(s *run.Spec) { s.Batch, s.Model.Hidden = 96, hidden }))
	return sha256.Sum256(chunkWeights(t, tr))
}

func TestSeedDecidesTheWeights(t *testing.T) {
	var a, b bytes.Buffer
	for seed, out := range map[uint64]*bytes.Buffer{1: &a, 2: &b} {
		tr := started(t, digitsJob(t, func(s *run.Spec) { s.Seed = seed }))
		if err := tr.Save(t.Context(), out); err != nil {
			t.Fatal(err)
		}
	}
	if bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("two seeds gave the same weights")
	}
}

func TestStepsAllocateNothing(t *testing.T) {
	tr := started(t, digitsJob(t, nil))
	progress := func(trainer.Progress) {}
	chunk := func() {
		if _, err := tr.Train(t.Context(), 0, progress); err != nil {
			t.Fatal(err)
		}
	}
	chunk()
	if n := testing.AllocsPerRun(10, chunk); n > 0 {
		t.Errorf("a chunk of 4 steps allocates %v times", n)
	}
}

func TestDivergenceIsExplained(t *testing.T) {
	job := digitsJob(t, func(s *run.Spec) {
		s.Optimizer = run.Optimizer{Kind: run.OptimizerSGD, LR: 1000, Clip: -1}
		s.Schedule = run.Schedule{Kind: run.ScheduleConstant}
		s.Model.Hidden = []int{64, 64, 64}
	})
	tr := started(t, job)
	var err error
	for c := 0; c < 20 && err == nil; c++ {
		_, err = tr.Train(t.Context(), domain.ChunkID(c), nil)
	}
	if domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), "step") || !strings.Contains(err.Error(), "learning rate 1e+03") ||
		!strings.Contains(domain.NextOf(err), "optimizer.lr") {
		t.Errorf("error %v, next %q", err, domain.NextOf(err))
	}
	for _, v := range tr.model.params.Data {
		if math.IsNaN(float64(v)) {
			t.Fatal("a refused step reached the weights")
		}
	}
}

// poison makes a finite step into weights that are not.
type poison struct{}

func (poison) Step(weights, _ []float32, _ float64) { weights[3] = float32(math.Inf(1)) }

func TestWeightsThatAreNotFiniteEndTheChunk(t *testing.T) {
	tr := started(t, digitsJob(t, func(s *run.Spec) { s.Batch, s.Chunk = 32, 32 }))
	tr.optimizer = poison{}
	if _, err := tr.Train(t.Context(), 0, nil); domain.KindOf(err) != domain.KindInvalid || domain.NextOf(err) == "" {
		t.Errorf("error %v", err)
	}
}

// Tiny data: fewer samples than a batch, a last chunk of one sample, and nothing held out.
func TestTinyData(t *testing.T) {
	csv := "a,b,label\n1,2,x\n2,1,y\n3,4,x\n4,3,y\n5,6,x\n"
	table, err := dataset.ParseCSV(strings.NewReader(csv), dataset.CSVOptions{})
	if err != nil {
		t.Fatal(err)
	}
	facts, raw := packed(t, table, 0)
	for _, batch := range []int{1, 2, 4, 32} {
		job := jobOf(t, facts, raw, func(s *run.Spec) { s.Batch, s.Chunk = batch, batch })
		if _, err := trainertest.Plain(t.Context(), Open, job, io.Discard); err != nil {
			t.Errorf("batch %d: %v", batch, err)
		}
	}
	if _, err := started(t, jobOf(t, facts, raw, nil)).Evaluate(t.Context(), nil); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("evaluation without held-out samples gave %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	facts, raw := digits(t)
	for _, c := range []struct {
		name string
		edit func(*trainer.Job)
		kind domain.Kind
	}{
		{"other samples", func(j *trainer.Job) { j.Dataset.Samples-- }, domain.KindIntegrity},
		{"other features", func(j *trainer.Job) { j.Dataset.Features++ }, domain.KindIntegrity},
		{"truncated data", func(j *trainer.Job) { j.Data = bytes.NewReader(raw[:len(raw)-1]) }, domain.KindIntegrity},
		{"no data set", func(j *trainer.Job) { j.Data = strings.NewReader("hello, this is no data set") }, domain.KindIntegrity},
		{"unknown model", func(j *trainer.Job) { j.Spec.Model.Kind = "forest" }, domain.KindInvalid},
		{"unknown optimizer", func(j *trainer.Job) { j.Spec.Optimizer.Kind = "lion" }, domain.KindInvalid},
		{"no batch", func(j *trainer.Job) { j.Spec.Batch = 0 }, domain.KindInvalid},
		{"no width", func(j *trainer.Job) { j.Spec.Model.Hidden = []int{0} }, domain.KindInvalid},
		{"too large", func(j *trainer.Job) { j.Spec.Model.Hidden = []int{60_000, 60_000} }, domain.KindInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := jobOf(t, facts, raw, nil)
			c.edit(&job)
			if _, err := Open(t.Context(), job); domain.KindOf(err) != c.kind {
				t.Errorf("error %v", err)
			}
		})
	}
}

// failing is a source whose link breaks while training.
type failing struct {
	io.ReaderAt
	after int
}

func (f *failing) ReadAt(p []byte, at int64) (int, error) {
	if f.after--; f.after < 0 {
		return 0, domain.Unavailable("fetch part", "the link is down", "", nil)
	}
	return f.ReaderAt.ReadAt(p, at)
}

func TestErrorsOfTheSourceKeepTheirKind(t *testing.T) {
	facts, raw := digits(t)
	job := jobOf(t, facts, raw, nil)
	job.Data = &failing{ReaderAt: bytes.NewReader(raw), after: 40}
	tr := started(t, job)
	var err error
	for c := 0; c < 10 && err == nil; c++ {
		_, err = tr.Train(t.Context(), domain.ChunkID(c), nil)
	}
	if domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("error %v", err)
	}
}

// A table's own rows, not standardised, get the class that evaluation of the standardised ones counts.
func TestPredictStandardises(t *testing.T) {
	job := digitsJob(t, nil)
	tr := started(t, job)
	for c := range 20 {
		if _, err := tr.Train(t.Context(), domain.ChunkID(c), nil); err != nil {
			t.Fatal(err)
		}
	}
	const rows = 359 // more than one batch
	x, y := make([]float32, rows*64), make([]int, rows)
	if err := tr.set.Heldout(0, rows, x, y); err != nil {
		t.Fatal(err)
	}
	for i := range x {
		x[i] = float32(float64(x[i])*tr.facts.Std[i%64] + tr.facts.Mean[i%64])
	}
	probs, err := tr.Predict(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	right := 0
	for i, label := range y {
		row, best := probs[i*10:i*10+10], 0
		for j, p := range row {
			if p > row[best] {
				best = j
			}
		}
		if best == label {
			right++
		}
	}
	m, err := tr.Evaluate(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := int(math.Round(m.Accuracy * rows)); right < want-1 || right > want+1 || right == rows || right < rows/2 {
		t.Errorf("%d of %d raw rows are predicted right, evaluation counts %d", right, rows, want)
	}
}
