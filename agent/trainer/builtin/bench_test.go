package builtin

import (
	"fmt"
	"testing"

	"tensorturn/domain/dataset"
	"tensorturn/domain/permute"
	"tensorturn/domain/run"
)

// BenchmarkStep measures one optimizer step, reading its batch included.
func BenchmarkStep(b *testing.B) {
	b.Run("digits 64-64-10, batch 32", func(b *testing.B) { benchmarkStep(b, started(b, digitsJob(b, nil))) })
	b.Run("pictures 784-128-10, batch 64", func(b *testing.B) {
		facts, raw := packed(b, pictures(), 0.2)
		benchmarkStep(b, started(b, jobOf(b, facts, raw, func(s *run.Spec) { s.Batch, s.Model.Hidden = 64, []int{128} })))
	})
}

// pictures is a table of the shape of Fashion-MNIST.
func pictures() *dataset.Table {
	const rows, features = 1000, 784
	t := &dataset.Table{Label: "label"}
	source := permute.NewSource(1)
	for c := range 10 {
		t.Classes = append(t.Classes, fmt.Sprint(c))
	}
	for j := range features {
		t.Columns = append(t.Columns, fmt.Sprint("pixel ", j))
	}
	for i := range rows {
		t.Labels = append(t.Labels, i%10)
		for range features {
			t.Values = append(t.Values, source.Float64())
		}
	}
	return t
}

func benchmarkStep(b *testing.B, t *Trainer) {
	t.locate(0)
	batch := t.indices[:t.batch]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := t.step(batch, 0); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "steps/s")
}
