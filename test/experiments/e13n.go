package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"tensorturn/domain/safetensors"
	"tensorturn/domain/vote"
)

// E13n: averaging the weights of independently started members is no ensemble. Each numbers its hidden units in its own
// order, so that the mean of the weights is the mean of nothing; members of one start keep the numbering. This is why
// `model export --soup` refuses members without a shared start, and the experiment fails if averaging would do.

const (
	soupSplits  = 20
	soupBelow   = 0.80 // the averaged weights must fall below, in the mean over splits
	soupMembers = 0.90 // while the members are above, in the mean too: a split has an unlucky member now and then
)

// plantSharedStart gives the "independent" members one start: their average is then a good model.
const plantSharedStart = "shared start"

func soup(l *lab) error {
	table, err := digits()
	if err != nil {
		return err
	}
	l.head("split", "mean member", "their vote", "average of their weights", "average, members of one start")
	var members, votes, averages, shared sample
	for n := range l.count(soupSplits, 2) {
		data, err := split(table, 300, uint64(n+1))
		if err != nil {
			return err
		}
		apart, err := data.soup(l, uint64(1000*(n+1)), l.plant == plantSharedStart)
		if err != nil {
			return err
		}
		together, err := data.soup(l, uint64(1000*(n+1)), true)
		if err != nil {
			return err
		}
		members, votes = append(members, apart.Mean.Accuracy), append(votes, apart.Vote.Accuracy)
		averages, shared = append(averages, apart.Single.Accuracy), append(shared, together.Single.Accuracy)
		l.row(fmt.Sprint(n+1), percent(apart.Mean.Accuracy), percent(apart.Vote.Accuracy), percent(apart.Single.Accuracy), percent(together.Single.Accuracy))
	}
	l.row("mean", percent(members.mean()), percent(votes.mean()), percent(averages.mean()), percent(shared.mean()))
	l.printf("\n")
	l.require(members.mean() > soupMembers, "members are above %.0f %%: %s %% in the mean over splits (lowest %s %%)", 100*soupMembers, percent(members.mean()), percent(members.least()))
	l.require(averages.mean() < soupBelow, "the average of independent members' weights is below %.0f %%: %s %% (highest %s %%)", 100*soupBelow, percent(averages.mean()), percent(averages.most()))
	return nil
}

// soup trains five members and measures them, their vote, and, as the compared single model, the average of their
// weights.
func (s *splitted) soup(l *lab, seed uint64, oneStart bool) (vote.Result, error) {
	scale := scales[1]
	m := mlp{hidden: scale.hidden, epochs: scale.epochs, batch: scale.batch, seed: seed}
	if oneStart {
		start, err := s.first(l.ctx, m)
		if err != nil {
			return vote.Result{}, err
		}
		m.start = start
	}
	in := vote.Input{Classes: s.data.Classes, Labels: s.labels}
	var weights [][]byte
	for k := range ensembleMembers {
		m.seed = seed + uint64(k)
		t, err := s.train(l.ctx, m)
		if err != nil {
			return vote.Result{}, err
		}
		in.Members, weights = append(in.Members, t.held), append(weights, t.weights)
	}
	mean, err := averageWeights(weights)
	if err != nil {
		return vote.Result{}, err
	}
	if in.Single, err = s.predict(l.ctx, m, mean); err != nil {
		return vote.Result{}, err
	}
	return vote.Compute(in, vote.Mean)
}

// averageWeights is the mean of F32 files of one layout.
func averageWeights(files [][]byte) ([]byte, error) {
	var sum []float64
	var layout []safetensors.Tensor
	for _, raw := range files {
		r, err := safetensors.NewReader(bytes.NewReader(raw))
		if err != nil {
			return nil, err
		}
		layout = r.Tensors()
		values, err := floats(r)
		if err != nil {
			return nil, err
		}
		if sum == nil {
			sum = make([]float64, len(values))
		}
		for i, v := range values {
			sum[i] += float64(v)
		}
	}
	var out bytes.Buffer
	w, err := safetensors.NewWriter(&out, layout, nil)
	if err != nil {
		return nil, err
	}
	for _, v := range sum {
		if err := binary.Write(w, binary.LittleEndian, float32(v/float64(len(files)))); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

// floats reads all values of a file in order.
func floats(r *safetensors.Reader) (all []float32, err error) {
	for {
		_, data, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		raw, err := io.ReadAll(data)
		if err != nil {
			return nil, err
		}
		for i := 0; i < len(raw); i += 4 {
			all = append(all, math.Float32frombits(binary.LittleEndian.Uint32(raw[i:])))
		}
	}
}
