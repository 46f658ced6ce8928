package builtin

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/trainertest"
	"tensorturn/domain"
	"tensorturn/domain/dataset"
	"tensorturn/domain/permute"
	"tensorturn/domain/run"
)

// pictureDigits packs the digits as pictures.
func pictureDigits(t testing.TB) (dataset.Facts, []byte) {
	t.Helper()
	f, err := os.Open(digitsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := dataset.ParseCSV(f, dataset.CSVOptions{})
	if err != nil {
		t.Fatal(err)
	}
	table.Shape = []int{1, 8, 8}
	return packed(t, table, 0.2)
}

// all trains a job to its end and measures it.
func all(t testing.TB, job trainer.Job) (*Trainer, trainer.Metrics) {
	t.Helper()
	tr := started(t, job)
	for c := range run.TotalChunks(job.Spec, job.Dataset) {
		if _, err := tr.Train(t.Context(), domain.ChunkID(c), nil); err != nil {
			t.Fatal(err)
		}
	}
	m, err := tr.Evaluate(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tr, m
}

func TestNetworksLearnDigits(t *testing.T) {
	for name, c := range map[string]struct {
		model run.Model
		least float64
	}{
		"cnn":                {run.Model{Kind: "cnn"}, 0.95},
		"cnn, normalised":    {run.Model{Layers: []string{"conv 8", "batchnorm", "relu", "avgpool 2", "conv 16 3 2", "layernorm", "relu", "linear 32", "batchnorm", "relu"}}, 0.93},
		"mlp, normalised":    {run.Model{Layers: []string{"linear 64", "layernorm", "relu", "linear 32", "batchnorm", "relu"}}, 0.92},
		"no layer but pools": {run.Model{Layers: []string{"maxpool 2"}}, 0.45},
	} {
		t.Run(name, func(t *testing.T) {
			facts, raw := pictureDigits(t)
			tr, m := all(t, jobOf(t, facts, raw, func(s *run.Spec) { s.Model, s.Epochs = c.model, 4 }))
			if m.Accuracy < c.least {
				t.Errorf("accuracy %v", m.Accuracy)
			}
			again, err := tr.Evaluate(t.Context(), nil)
			if err != nil || again != m {
				t.Errorf("measured again: %v, %v", again, err)
			}
		})
	}
}

// Tensors carry the names and shapes of torch's chain, statistics those that merges know.
func TestLayoutOfLayers(t *testing.T) {
	facts, raw := pictureDigits(t)
	tr := started(t, jobOf(t, facts, raw, func(s *run.Spec) {
		s.Model = run.Model{Layers: []string{"conv 4 5", "batchnorm", "relu", "maxpool 2", "linear 6"}}
	}))
	var names []string
	for _, tensor := range tr.Layout() {
		names = append(names, tensor.String())
	}
	want := `"0.bias" F32[4] "0.weight" F32[4,1,5,5] "1.bias" F32[4] "1.running_mean" F32[4] "1.running_var" F32[4] "1.weight" F32[4] "5.bias" F32[6] "5.weight" F32[6,64] "6.bias" F32[10] "6.weight" F32[10,6]`
	if got := strings.Join(names, " "); got != want {
		t.Errorf("tensors %s", got)
	}
}

// Weight decay leaves the running statistics alone.
func TestStatisticsAreNotDecayed(t *testing.T) {
	facts, raw := digits(t)
	job := jobOf(t, facts, raw, func(s *run.Spec) {
		s.Model = run.Model{Layers: []string{"batchnorm", "linear 8", "relu"}}
		s.Optimizer.WeightDecay, s.Optimizer.LR = 0.5, 0.5
	})
	tr := started(t, job)
	if _, err := tr.Train(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, tensor := range tr.model.layout {
		n := elements(tensor)
		if tensor.Name == "0.running_var" {
			// Standardised columns have a variance of about 1; the decay would take three quarters of it off each step.
			if v := tr.model.params.Data[at+3]; v < 0.5 || v > 2 {
				t.Errorf("a running variance is %v", v)
			}
		}
		at += n
	}
}

// Every kind of network keeps the promises of a trainer.
func TestKindsKeepThePromises(t *testing.T) {
	facts, raw := pictureDigits(t)
	trainertest.Suite(t, Open, func(t *testing.T) trainer.Job {
		return jobOf(t, facts, raw, func(s *run.Spec) {
			s.Model.Layers = []string{"conv 4", "batchnorm", "relu", "maxpool 2", "layernorm"}
		})
	})
	trainertest.Suite(t, Open, func(t *testing.T) trainer.Job { return textJob(t, sentences(3000), nil) })
}

func TestRegressionIsLearnt(t *testing.T) {
	var csv strings.Builder
	csv.WriteString("a,b,c,price\n")
	s := permute.NewSource(3)
	for range 600 {
		a, b, c := s.Float64()*10, s.Float64(), s.Float64()*100
		fmt.Fprintf(&csv, "%g,%g,%g,%g\n", a, b, c, 1000+30*a-200*b*b+c)
	}
	table, err := dataset.ParseCSV(strings.NewReader(csv.String()), dataset.CSVOptions{Regression: true})
	if err != nil {
		t.Fatal(err)
	}
	facts, raw := packed(t, table, 0.2)
	tr, m := all(t, jobOf(t, facts, raw, func(s *run.Spec) { s.Data.Task, s.Epochs = run.TaskRegression, 60 }))
	if m.R2 == nil || *m.R2 < 0.98 || *m.MAE > 15 || m.Accuracy != 0 || m.Samples != 120 {
		t.Fatalf("loss %v, R² %v, MAE %v", m.Loss, m.R2, m.MAE)
	}
	// The figures are those of the predictions, in the table's units.
	truth, said := 0.0, 0.0
	p, err := tr.Predict(t.Context(), []float32{5, 0.5, 50, 1, 0, 0})
	if err != nil || len(p) != 2 {
		t.Fatal(p, err)
	}
	for i, want := range []float64{1000 + 150 - 50 + 50, 1030} {
		truth, said = want, float64(p[i])
		if math.Abs(truth-said) > 60 {
			t.Errorf("%v is predicted, %v is right", said, truth)
		}
	}
	if want := *m.MAE * *m.MAE; m.Loss < want || m.Loss > 20*want {
		t.Errorf("mean squared error %v beside a mean absolute error of %v", m.Loss, *m.MAE)
	}
}

func TestTransformerLearns(t *testing.T) {
	tr, m := all(t, textJob(t, sentences(12_000), func(s *run.Spec) {
		s.Model = run.Model{Kind: run.ModelTransformer, Context: 16, Embedding: 32, Blocks: 1, Heads: 2}
		s.Epochs, s.Batch, s.Optimizer.LR = 4, 8, 5e-3
	}))
	if m.Loss > 0.7 || m.Accuracy < 0.65 {
		t.Errorf("loss %v, accuracy %v on %d windows", m.Loss, m.Accuracy, m.Samples)
	}
	context := []byte("mat. sat on a th")
	x := make([]float32, len(context))
	for i, b := range context {
		x[i] = float32(b)
	}
	p, err := tr.Predict(t.Context(), append(slices.Clone(x), x...))
	if err != nil || len(p) != 2*dataset.Bytes || slices.Index(p[:256], slices.Max(p[:256])) != 'e' || !slices.Equal(p[:256], p[256:]) {
		t.Errorf("behind \"th\" comes %q, %v", rune(slices.Index(p, slices.Max(p))), err)
	}
}

// The same bits at any number of cores, for every kind of network.
func TestKindsAreExact(t *testing.T) {
	facts, raw := pictureDigits(t)
	for name, job := range map[string]func() trainer.Job{
		"cnn": func() trainer.Job {
			return jobOf(t, facts, raw, func(s *run.Spec) {
				s.Batch, s.Chunk = 64, 256
				s.Model.Layers = []string{"conv 16", "batchnorm", "relu", "maxpool 2", "layernorm"}
			})
		},
		"transformer": func() trainer.Job {
			return textJob(t, sentences(8000), func(s *run.Spec) {
				s.Model = run.Model{Kind: run.ModelTransformer}
				s.Batch, s.Chunk = 16, 64
			})
		},
	} {
		weights := func(procs int) []float32 {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			tr := started(t, job())
			if _, err := tr.Train(t.Context(), 0, nil); err != nil {
				t.Fatal(err)
			}
			return tr.model.params.Data
		}
		one := weights(1)
		for _, procs := range []int{2, 8} {
			if !slices.Equal(one, weights(procs)) {
				t.Errorf("%s: %d processors give other bits than one", name, procs)
			}
		}
	}
}

// What a convolution works in counts: a part of its gradient for every tile is far more than its weights and activations.
func TestConvolutionsMemoryIsBounded(t *testing.T) {
	facts, raw := pictureDigits(t)
	spec := jobOf(t, facts, raw, func(s *run.Spec) { s.Model = run.Model{Layers: []string{"conv 512", "relu", "conv 512"}} }).Spec.Model
	for capacity, fits := range map[int]bool{512: true, 2048: false} { // 6 and 22 GiB, of which 1 and 3 are weights and activations
		net, err := chainOf(spec, facts)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkSize(net, net.parameters(), facts.Features(), capacity); (err == nil) != fits || !fits && domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("batches of %d rows: %v", capacity, err)
		}
	}
}
