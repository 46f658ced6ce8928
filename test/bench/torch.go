package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/builtin"
	"tensorturn/domain"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
)

// The built-in trainer beside PyTorch on two threads, in turns of equal length, so that both meet the same neighbours.
const (
	stepsScript = "test/bench/steps.py"
	torchTurns  = 5
)

// torchRow is a model that both train: the same layers, batch and optimizer.
type torchRow struct {
	what  string
	least float64 // of PyTorch's steps per second
	model run.Model
	shape []int // of a row of a table
	batch int
}

func torchRows() []torchRow {
	return []torchRow{
		{"MLP 64-64-10, batch 32", 1, run.Model{Layers: []string{"linear 64", "relu"}}, []int{64}, 32},
		{"CNN conv 16, conv 32, pool, 64, batch 32", 0.5, run.Model{Layers: run.DefaultCNN()}, []int{1, 8, 8}, 32},
		{"transformer d 64, 2 blocks, 4 heads, context 64, batch 16", 0.3, run.Model{Kind: run.ModelTransformer}, nil, 16},
	}
}

// besideTorch measures the rows, where an interpreter with torch is at hand.
func (b *bench) besideTorch(d *bed) {
	python := os.Getenv("PYTHON")
	if python == "" {
		python = "/usr/bin/python3"
	}
	if err := exec.CommandContext(b.ctx, python, "-c", "import torch").Run(); err != nil {
		b.report.note("%s has no torch (make torch): the built-in trainer stands beside nothing", python)
		return
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	turn := 700 * time.Millisecond
	if b.quick {
		turn = 100 * time.Millisecond
	}
	for _, r := range torchRows() {
		ours, theirs := b.turns(d, python, r, turn)
		b.report.add(row{Section: "torch", What: r.what, Value: ours, Unit: "steps/s", Ratio: ours / theirs, Of: fmt.Sprintf("PyTorch, two threads, %.0f steps/s", theirs), Least: r.least})
	}
}

// turns gives the best turn of each.
func (b *bench) turns(d *bed, python string, r torchRow, turn time.Duration) (ours, theirs float64) {
	c := exec.CommandContext(b.ctx, python, stepsScript)
	in, err := c.StdinPipe()
	d.Must(err)
	out, err := c.StdoutPipe()
	d.Must(err)
	c.Stderr = b.talk
	d.Must(c.Start())
	defer c.Wait() // its input is closed by then, and it ends
	defer in.Close()
	tr, spec, data := b.torchTrainer(d, r)
	defer tr.Close()
	m := spec.Model
	ask, err := json.Marshal(map[string]any{"batch": r.batch, "model": map[string]any{"kind": m.Kind, "layers": m.Layers, "shape": r.shape, "out": data.Classes,
		"context": m.Context, "embedding": m.Embedding, "blocks": m.Blocks, "heads": m.Heads}})
	d.Must(err)
	_, err = in.Write(append(ask, '\n'))
	d.Must(err)
	answers := bufio.NewScanner(out)
	chunk := domain.ChunkID(0)
	for range torchTurns {
		_, err := io.WriteString(in, strconv.FormatFloat(turn.Seconds(), 'f', -1, 64)+"\n")
		d.Must(err)
		if !answers.Scan() {
			d.Fatal("PyTorch gave no figure")
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(answers.Text()), 64)
		d.Must(err)
		theirs = max(theirs, f)
		steps, began := 0, time.Now()
		for ; time.Since(began) < turn; chunk++ {
			done, err := tr.Train(b.ctx, chunk, nil)
			d.Must(err)
			steps += done.Steps
		}
		ours = max(ours, float64(steps)/time.Since(began).Seconds())
	}
	return ours, theirs
}

// torchTrainer opens the built-in trainer on data of the row's shape.
func (b *bench) torchTrainer(d *bed, r torchRow) (trainer.Trainer, run.Spec, run.Dataset) {
	spec := run.Spec{Name: "steps", Model: r.model, Batch: r.batch, Chunk: r.batch, Epochs: 1 << 10, Round: run.Round{Chunks: 1}, Data: run.Data{Path: "x"}}
	var raw bytes.Buffer
	var facts dataset.Facts
	var err error
	if r.shape == nil {
		spec.Data.Format = run.FormatText
		spec, err = run.Defaults(spec)
		d.Must(err)
		text := make([]byte, 1<<18)
		for i := range text {
			text[i] = byte(i * i >> 3)
		}
		facts, err = dataset.PackText(text, builtin.TextOptions(spec.Model), 0.1, 1, &raw)
	} else {
		t := pictures()
		width := 1
		for _, n := range r.shape {
			width *= n
		}
		values := t.Values
		t.Columns, t.Values = t.Columns[:width], nil
		for i := range t.Rows() {
			t.Values = append(t.Values, values[i*784:i*784+width]...)
		}
		if len(r.shape) == 3 {
			t.Shape = slices.Clone(r.shape)
		}
		facts, err = dataset.Pack(t, 0.2, 1, &raw)
	}
	d.Must(err)
	data := facts.Run(anyBase)
	spec, err = run.Resolve(spec, data)
	d.Must(err)
	tr, err := builtin.Open(b.ctx, trainer.Job{Run: "r-1", Spec: spec, Dataset: data, Data: bytes.NewReader(raw.Bytes())})
	d.Must(err)
	d.Must(tr.Init(b.ctx))
	return tr, spec, data
}
