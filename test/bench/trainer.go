package main

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/builtin"
	"tensorturn/domain"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
)

// digitsFile is the demo's data, seen from the repository's root.
const digitsFile = "cmd/tensorturn/demo/digits.csv.gz"

// trainers measures optimizer steps of the built-in trainer, reading included, beside a large product of the library it
// computes with.
func (b *bench) trainers(d *bed) {
	limit := 1500 * time.Millisecond
	if b.quick {
		limit = 50 * time.Millisecond
	}
	f, err := os.Open(digitsFile)
	d.Must(err)
	defer f.Close()
	table, err := dataset.ParseCSV(f, dataset.CSVOptions{})
	d.Must(err)
	peak := productSpeed(d, limit)
	for _, c := range []struct {
		what   string
		table  *dataset.Table
		batch  int
		hidden int
	}{{"digits 64-64-10, batch 32", table, 32, 64}, {"pictures 784-128-10, batch 64", pictures(), 64, 128}} {
		steps := b.steps(d, c.table, c.batch, c.hidden, limit)
		in, out := len(c.table.Columns), len(c.table.Classes)
		flops := 6 * float64(c.hidden*(in+out)*c.batch) // two for each weight and sample, forward, and twice that backward
		b.report.add(row{Section: "trainer", What: c.what, Value: steps, Unit: "steps/s", Ratio: steps * flops / peak, Of: "a product of 512³ in operations/s"})
	}
}

// steps trains chunks for a while and gives optimizer steps per second.
func (b *bench) steps(d *bed, table *dataset.Table, batch, hidden int, limit time.Duration) float64 {
	var packed bytes.Buffer
	facts, err := dataset.Pack(table, 0.2, 1, &packed)
	d.Must(err)
	data := facts.Run(anyBase)
	spec, err := run.Resolve(run.Spec{Name: "steps", Data: run.Data{Path: "x.csv"}, Model: run.Model{Kind: "mlp", Hidden: []int{hidden}},
		Batch: batch, Epochs: 1000, Chunk: 4 * batch, Round: run.Round{Chunks: 1}}, data)
	d.Must(err)
	t, err := builtin.Open(b.ctx, trainer.Job{Run: "r-1", Spec: spec, Dataset: data, Data: bytes.NewReader(packed.Bytes())})
	d.Must(err)
	defer t.Close()
	d.Must(t.Init(b.ctx))
	steps, began := 0, time.Now()
	for c := domain.ChunkID(0); time.Since(began) < limit && int(c) < run.ChunksPerEpoch(spec, data)*spec.Epochs; c++ {
		r, err := t.Train(b.ctx, c, nil)
		d.Must(err)
		steps += r.Steps
	}
	return float64(steps) / time.Since(began).Seconds()
}

// pictures is a table of the shape of Fashion-MNIST.
func pictures() *dataset.Table {
	const rows, features = 2000, 784
	t := &dataset.Table{Label: "label"}
	for c := range 10 {
		t.Classes = append(t.Classes, fmt.Sprint(c))
	}
	for j := range features {
		t.Columns = append(t.Columns, fmt.Sprint("pixel ", j))
	}
	x := uint64(1)
	for i := range rows {
		t.Labels = append(t.Labels, i%10)
		for range features {
			x = x*6364136223846793005 + 1442695040888963407
			t.Values = append(t.Values, float64(x>>40)/(1<<24))
		}
	}
	return t
}

// productSpeed is how many operations per second a product of large square matrices does.
func productSpeed(d *bed, limit time.Duration) float64 {
	const n = 512
	m := func() blas32.General { return blas32.General{Rows: n, Cols: n, Stride: n, Data: make([]float32, n*n)} }
	x, y, z := m(), m(), m()
	for i := range x.Data {
		x.Data[i], y.Data[i] = float32(i%7), float32(i%5)
	}
	count, began := 0, time.Now()
	for time.Since(began) < limit {
		blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, x, y, 0, z)
		count++
	}
	if z.Data[n] == 0 {
		d.Fatal("the product is zero")
	}
	return float64(count) * 2 * n * n * n / time.Since(began).Seconds()
}
