package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/builtin"
	"tensorturn/domain"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
)

// digitsPath is the demo's data, from the root of the repository or from this folder.
const digitsPath = "cmd/tensorturn/demo/digits.csv.gz"

// digits is the table of 1,797 pictures of 8 × 8 handwritten digits.
func digits() (*dataset.Table, error) {
	f, err := os.Open(digitsPath)
	if os.IsNotExist(err) {
		f, err = os.Open("../../" + digitsPath)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return dataset.ParseCSV(f, dataset.CSVOptions{})
}

// splitted is one split of a table, packed as `run submit` packs it.
type splitted struct {
	raw    []byte
	data   run.Dataset
	held   []float32 // raw features of the held-out rows
	labels []int32
}

// split takes train rows for training, stratified, and holds out the rest.
func split(t *dataset.Table, train int, seed uint64) (*splitted, error) {
	var out bytes.Buffer
	facts, err := dataset.Pack(t, 1-float64(train)/float64(t.Rows()), seed, &out)
	if err != nil {
		return nil, err
	}
	s := &splitted{raw: out.Bytes(), data: facts.Run(domain.Digest(strings.Repeat("0", 64)))}
	set, err := dataset.Open(bytes.NewReader(s.raw), int64(len(s.raw)))
	if err != nil {
		return nil, err
	}
	s.held = make([]float32, facts.Heldout*facts.Features())
	labels := make([]int, facts.Heldout)
	if err := set.Heldout(0, facts.Heldout, s.held, labels); err != nil {
		return nil, err
	}
	for i := range s.held { // packed rows are standardised, Predict takes rows as they stand in the table
		c := i % facts.Features()
		s.held[i] = float32(float64(s.held[i])*facts.Std[c] + facts.Mean[c])
	}
	for _, l := range labels {
		s.labels = append(s.labels, int32(l))
	}
	return s, nil
}

// mlp is one model to train: everything else is the product's default.
type mlp struct {
	hidden int
	seed   uint64 // of the first weights and of the order of samples
	epochs int
	batch  int
	start  []byte // first weights instead of the seed's; nil: none
}

// trained is a model after its last epoch.
type trained struct {
	weights []byte    // safetensors
	held    []float32 // probabilities of the held-out rows
}

// train trains one model from its first chunk to its last and lets it predict the held-out rows.
func (s *splitted) train(ctx context.Context, m mlp) (trained, error) {
	tr, spec, err := s.open(ctx, m)
	if err != nil {
		return trained{}, err
	}
	defer tr.Close()
	if m.start != nil {
		err = tr.Load(ctx, bytes.NewReader(m.start))
	} else {
		err = tr.Init(ctx)
	}
	if err != nil {
		return trained{}, err
	}
	for c := range run.TotalChunks(spec, s.data) {
		if _, err := tr.Train(ctx, domain.ChunkID(c), nil); err != nil {
			return trained{}, err
		}
	}
	var w bytes.Buffer
	if err := tr.Save(ctx, &w); err != nil {
		return trained{}, err
	}
	held, err := tr.Predict(ctx, s.held)
	return trained{weights: w.Bytes(), held: held}, err
}

// first gives the weights that a seed starts from.
func (s *splitted) first(ctx context.Context, m mlp) ([]byte, error) {
	tr, _, err := s.open(ctx, m)
	if err != nil {
		return nil, err
	}
	defer tr.Close()
	if err := tr.Init(ctx); err != nil {
		return nil, err
	}
	var w bytes.Buffer
	err = tr.Save(ctx, &w)
	return w.Bytes(), err
}

// predict gives the probabilities of the held-out rows for given weights.
func (s *splitted) predict(ctx context.Context, m mlp, weights []byte) ([]float32, error) {
	tr, _, err := s.open(ctx, m)
	if err != nil {
		return nil, err
	}
	defer tr.Close()
	if err := tr.Load(ctx, bytes.NewReader(weights)); err != nil {
		return nil, err
	}
	return tr.Predict(ctx, s.held)
}

func (s *splitted) open(ctx context.Context, m mlp) (trainer.Trainer, run.Spec, error) {
	spec, err := run.Resolve(run.Spec{Seed: m.seed, Model: run.Model{Hidden: []int{m.hidden}}, Epochs: m.epochs, Batch: m.batch}, s.data)
	if err != nil {
		return nil, spec, err
	}
	tr, err := builtin.Open(ctx, trainer.Job{Run: "r-1", Spec: spec, Dataset: s.data, Data: bytes.NewReader(s.raw)})
	if err != nil {
		return nil, spec, fmt.Errorf("open model: %w", err)
	}
	return tr, spec, nil
}
