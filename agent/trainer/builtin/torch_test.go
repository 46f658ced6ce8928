package builtin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tensorturn/agent/trainer"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
)

// python is an interpreter that has torch, or the test is skipped; `make torch` installs one.
func python(t testing.TB) string {
	t.Helper()
	name := os.Getenv("TENSORTURN_TEST_PYTHON")
	if name == "" {
		name = "/usr/bin/python3"
	}
	if out, err := exec.CommandContext(t.Context(), name, "-c", "import torch").CombinedOutput(); err != nil {
		t.Skipf("no torch at hand (make torch): %v: %s", err, out)
	}
	return name
}

// TestStepAgreesWithTorch makes one step of plain gradient descent here and in PyTorch from the same weights on the same
// batch, for every kind of network and layer: gradients, running statistics and names of tensors are torch's.
func TestStepAgreesWithTorch(t *testing.T) {
	if testing.Short() {
		t.Skip("starts PyTorch several times")
	}
	interpreter := python(t)
	picture := func(layers ...string) func(t *testing.T) trainer.Job {
		return func(t *testing.T) trainer.Job {
			facts, raw := pictureDigits(t)
			return jobOf(t, facts, raw, func(s *run.Spec) { s.Model.Layers = layers })
		}
	}
	for name, open := range map[string]func(t *testing.T) trainer.Job{
		"convolutions": picture(run.DefaultCNN()...),
		"every layer":  picture("conv 6 5 2", "batchnorm", "relu", "conv 4", "layernorm", "relu", "avgpool 2", "linear 12", "layernorm", "relu", "batchnorm"),
		"transformer": func(t *testing.T) trainer.Job {
			return textJob(t, sentences(4000), func(s *run.Spec) {
				s.Model = run.Model{Kind: run.ModelTransformer, Context: 12, Embedding: 16, Heads: 4}
			})
		},
		"text": func(t *testing.T) trainer.Job { return textJob(t, sentences(4000), nil) },
		"numbers": func(t *testing.T) trainer.Job {
			var csv strings.Builder
			for i := range 100 {
				fmt.Fprintf(&csv, "%d,%d,%g\n", i%7, i%11, math.Sqrt(float64(i%7*(i%11))))
			}
			table, err := dataset.ParseCSV(strings.NewReader(csv.String()), dataset.CSVOptions{Regression: true})
			if err != nil {
				t.Fatal(err)
			}
			facts, raw := packed(t, table, 0.2)
			return jobOf(t, facts, raw, func(s *run.Spec) { s.Data.Task, s.Model.Layers = run.TaskRegression, []string{"linear 8", "relu"} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := open(t)
			job.Spec.Batch, job.Spec.Chunk = 24, 24
			job.Spec.Optimizer = run.Optimizer{Kind: run.OptimizerSGD, LR: 0.1, Clip: -1}
			job.Spec.Schedule = run.Schedule{Kind: run.ScheduleConstant, Warmup: -1}
			agreesWithTorch(t, interpreter, job)
		})
	}
}

func agreesWithTorch(t *testing.T, interpreter string, job trainer.Job) {
	tr := started(t, job)
	dir := t.TempDir()
	save := func(name string) string {
		var out bytes.Buffer
		if err := tr.Save(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	before := save("before")
	done, err := tr.Train(t.Context(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := job.Spec.Model
	model := map[string]any{"kind": m.Kind, "hidden": m.Hidden, "layers": m.Layers, "context": m.Context, "embedding": m.Embedding, "blocks": m.Blocks, "heads": m.Heads, "out": max(1, job.Dataset.Classes)}
	if m.Context == 0 {
		model["shape"] = []int{job.Dataset.Features}
		if job.Dataset.Height > 0 {
			model["shape"] = []int{1, job.Dataset.Height, job.Dataset.Width}
		}
	}
	ask := map[string]any{"model": model, "before": before, "after": save("after"), "x": tr.model.input.Data, "rows": 24, "lr": job.Spec.Optimizer.LR, "regression": tr.facts.Regression()}
	if tr.facts.Regression() {
		ask["y"] = tr.model.end.squared.Targets()
	} else {
		ask["y"] = tr.model.end.classes.Labels()
	}
	in, err := json.Marshal(ask)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), interpreter, "testdata/step.py")
	c.Stdin, c.Stderr = bytes.NewReader(in), os.Stderr
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Loss  float64
		Worst map[string]float64
	}
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatal(err)
	}
	if math.Abs(said.Loss*tr.scale-done.Loss) > 1e-4*said.Loss*tr.scale {
		t.Errorf("the loss is %v, torch's %v", done.Loss, said.Loss*tr.scale)
	}
	if len(said.Worst) != len(tr.model.layout) {
		t.Errorf("torch has %d of %d tensors", len(said.Worst), len(tr.model.layout))
	}
	for name, off := range said.Worst { // of the largest change of the tensor
		if off > 2e-3 {
			t.Errorf("%s differs from torch's by %v of its step", name, off)
		}
	}
}
