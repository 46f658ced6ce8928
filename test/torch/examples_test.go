package torch

import (
	"bytes"
	le "encoding/binary"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tensorturn/domain/safetensors"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
)

// Every example trains in a pool of two, and what travels is what should.
func TestExamples(t *testing.T) {
	p, _ := startPool(t, "a", "b")
	for _, c := range []struct {
		spec     string
		accuracy float64 // above what always guessing the commonest class gives, below what it reaches
		travels  []string
	}{
		{"gpt.yaml", 0.21, []string{"blocks.0.mlp.0.bias", "table.weight", "norm.weight"}},
		{"lora.yaml", 0.6, []string{"1.a", "1.b", "3.a", "3.b"}},
		{"batchnorm.yaml", 0.5, []string{"conv.weight", "norm.running_mean", "norm.running_var", "narrow.weight", "classes.weight", "head.bias"}},
	} {
		t.Run(c.spec, func(t *testing.T) {
			r := awaitEnd(t, p, submit(t, p, c.spec), 4*time.Minute)
			checkRun(t, p, r)
			last := r.Evaluations[len(r.Evaluations)-1]
			t.Logf("accuracy %.4f, loss %.4f, %d rounds, %d parameters", last.Accuracy, last.Loss, r.Rounds.Merged, r.Params)
			if last.Accuracy < c.accuracy {
				t.Errorf("accuracy %.4f, want %.2f", last.Accuracy, c.accuracy)
			}
			checkTensors(t, p, r, c.travels)
		})
	}
}

// checkTensors looks into the model: the wanted tensors, nothing frozen, tied or counted, and statistics that can be.
func checkTensors(t *testing.T, p *kit.Pool, r runs.Run, want []string) {
	t.Helper()
	file := p.Blob(r.Model)
	reader, err := safetensors.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for range reader.Tensors() {
		tensor, body, err := reader.Next()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tensor.Name)
		n, _ := tensor.Count()
		raw := make([]byte, 4*n)
		if _, err := io.ReadFull(body, raw); n > 0 && err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(raw); i += 4 {
			v := math.Float32frombits(le.LittleEndian.Uint32(raw[i:]))
			if strings.HasSuffix(tensor.Name, "running_var") && !(v >= 0) {
				t.Errorf("%s %d is %v", tensor.Name, i/4, v)
			}
		}
	}
	for _, name := range want {
		if !slices.Contains(names, name) {
			t.Errorf("%s does not travel: %q", name, names)
		}
	}
	for _, name := range names {
		if strings.HasPrefix(name, "frozen.") || strings.Contains(name, ".frozen.") && !strings.HasPrefix(name, "tensorturn.frozen.") || name == "head.weight" ||
			strings.HasSuffix(name, "num_batches_tracked") || strings.HasSuffix(name, "mask") || name == "order" {
			t.Errorf("%s travels", name)
		}
	}
	if dir := filepath.Join(t.TempDir(), "model"); p.Run("model", "export", string(r.ID), dir).Code != 0 {
		t.Error("the model cannot be exported")
	}
}
