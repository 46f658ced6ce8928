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
