package replay

import (
	"bytes"
	"context"
	"io"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/merge"
)

func TestLineageNamesEveryDelta(t *testing.T) {
	w := newWorld(t, nil)
	l, err := w.replay(allChecks)
	w.must(err)
	as := l.Lineage()
	if len(as) != rounds || as[rounds-1].Model != w.state.Base {
		t.Fatalf("%d merges, the last gives %s", len(as), as[len(as)-1].Model)
	}
	for i, a := range as {
		sum := 0.0
		for _, s := range a.Shares {
			sum += s.Weight
			if s.Slot.Machine() != s.Machine || s.Samples == 0 || s.Delta == "" {
				t.Errorf("round %d: %+v", a.Round, s)
			}
		}
		if sum < 0.999999 || sum > 1.000001 || i > 0 && a.Base != as[i-1].Model {
			t.Errorf("round %d: weights add up to %g, base %s", a.Round, sum, a.Base)
		}
	}
}

// TestWithoutAMachine holds what Without gives against a merge of the other machine's deltas that is done here by hand.
func TestWithoutAMachine(t *testing.T) {
	for name, prune := range map[string]bool{"all kept": false, "bases dropped": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			at := rounds - 1
			want := mergeByHand(t, w, at, "a")
			if prune && w.prune() == 0 {
				t.Fatal("nothing was dropped")
			}
			l, err := w.replay(allChecks)
			w.must(err)
			got, err := l.Without(context.Background(), at, "a", w.blobs.get, &scratch{})
			w.must(err)
			if got.Model != want || got.Model == got.Actual || got.Left == 0 || got.Dropped == 0 {
				t.Errorf("%+v, want weights %s", got, want)
			}
			for _, m := range []domain.MachineID{"nobody"} {
				if _, err := l.Without(context.Background(), at, m, w.blobs.get, &scratch{}); domain.KindOf(err) != domain.KindNotFound {
					t.Errorf("without %s: %v", m, err)
				}
			}
			if _, err := l.Without(context.Background(), rounds+9, "a", w.blobs.get, &scratch{}); domain.KindOf(err) != domain.KindNotFound {
				t.Errorf("a round that is not there: %v", err)
			}
		})
	}
}

// TestWithoutIsTheRunWithout holds what Without gives against a run in which the machine really contributed nothing to the
// round: the same up to there, then its lease expires and the round closes with what the other one gave. Every round is
// tried, with all weights kept and with those that the keep policy drops made again.
func TestWithoutIsTheRunWithout(t *testing.T) {
	for n := 1; n <= rounds; n++ {
		other := newWorld(t, func(w *world) { w.absent = n })
		want := other.merges()[n-1]
		if len(want.Inputs) != 1 || want.Inputs[0].Slot.Machine() != "b" {
			t.Fatalf("round %d of the other run has %d inputs", n, len(want.Inputs))
		}
		for _, prune := range []bool{false, true} {
			w := newWorld(t, nil)
			if prune {
				w.prune()
			}
			l, err := w.replay(allChecks)
			w.must(err)
			got, err := l.Without(context.Background(), n, "a", w.blobs.get, &scratch{})
			w.must(err)
			if got.Model != want.NextBase {
				t.Errorf("round %d, pruned %v: %s, the run without it gives %s", n, prune, got.Model.Short(), want.NextBase.Short())
			}
			if got.Model == got.Actual || got.Actual != w.merges()[n-1].NextBase {
				t.Errorf("round %d: %+v", n, got)
			}
			// What follows is as it was: later rounds trained on weights that the machine had a part in, and what they would
			// have learnt from others nobody can compute. Without is about one round.
			if n < rounds && other.merges()[n].NextBase == w.merges()[n].NextBase {
				t.Errorf("round %d is the same although the one before it is not", n+1)
			}
		}
	}
}

// mergeByHand merges what machines other than not gave to the round, with nothing of this package.
func mergeByHand(t *testing.T, w *world, round int, not domain.MachineID) domain.Digest {
	t.Helper()
	l, err := w.replay(allChecks)
	w.must(err)
	f := l.rounds[round-1].fact
	open := func(d domain.Digest) io.Reader {
		r, err := blob.Open(context.Background(), d, w.blobs.get)
		w.must(err)
		b, err := io.ReadAll(r)
		w.must(err)
		return bytes.NewReader(b)
	}
	out := store{}
	next, momentum := blob.NewWriter(context.Background(), out.put), blob.NewWriter(context.Background(), out.put)
	job := merge.Job{BaseDigest: f.Base, Base: open(f.Base), Momentum: open(f.Momentum), Eta: f.Eta, Mu: f.Mu, NextBase: next, NextMomentum: momentum}
	for _, in := range f.Inputs {
		if in.Slot.Machine() != not {
			job.Inputs = append(job.Inputs, merge.Input{Delta: open(in.Blob), Codec: merge.Codec(in.Codec), Samples: in.Samples})
		}
	}
	_, err = merge.Merge(job)
	w.must(err)
	d, err := next.Close()
	w.must(err)
	return d
}
