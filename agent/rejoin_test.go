package agent

import (
	"context"
	"testing"

	"tensorturn/agent/trainer"
)

type rejoinCounter struct {
	trainer.Trainer
	n int
}

func (r *rejoinCounter) Rejoin(context.Context) error { r.n++; return nil }

// TestRejoin: the optimizer state is kept through MaxMissedRounds missed rounds and no more.
func TestRejoin(t *testing.T) {
	for _, c := range []struct {
		name     string
		last, at int
		want     int
	}{
		{"the first round of the run", 0, 1, 0},
		{"the next round", 3, 4, 0},
		{"the same round again", 3, 3, 0},
		{"as many missed as allowed", 3, 3 + trainer.MaxMissedRounds + 1, 0},
		{"one more", 3, 3 + trainer.MaxMissedRounds + 2, 1},
		{"a new machine early", 0, trainer.MaxMissedRounds + 1, 0},
		{"a new machine late", 0, trainer.MaxMissedRounds + 2, 1},
	} {
		tr := &rejoinCounter{}
		w := &worker{trainer: tr, round: c.last, ctx: t.Context()}
		if err := w.rejoin(c.at); err != nil {
			t.Fatal(err)
		}
		if tr.n != c.want || w.round != c.at {
			t.Errorf("%s: %d calls, round %d", c.name, tr.n, w.round)
		}
	}
}
