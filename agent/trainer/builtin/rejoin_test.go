package builtin

import (
	"bytes"
	"testing"

	"tensorturn/agent/trainer"
	"tensorturn/domain/run"
)

// TestRejoinForgetsAndRamps: a slot that was away for long begins with an empty optimizer and small steps.
func TestRejoinForgetsAndRamps(t *testing.T) {
	job := digitsJob(t, nil)
	tr := started(t, job)
	ctx := t.Context()
	if _, err := tr.Train(ctx, 0, nil); err != nil {
		t.Fatal(err)
	}
	var base bytes.Buffer
	if err := tr.Save(ctx, &base); err != nil {
		t.Fatal(err)
	}
	if err := tr.Rejoin(ctx); err != nil {
		t.Fatal(err)
	}
	if got := tr.ramped(1); got != 1.0/trainer.RampSteps {
		t.Fatalf("the first step is at %v of the rate", got)
	}
	if err := tr.Load(ctx, bytes.NewReader(base.Bytes())); err != nil {
		t.Fatal(err)
	}
	steps := 0
	for c := 1; tr.ramp > 0; c++ {
		before := tr.ramped(1)
		r, err := tr.Train(ctx, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		steps += r.Steps
		if after := tr.ramped(1); after <= before {
			t.Fatalf("the rate does not grow: %v, then %v", before, after)
		}
	}
	if steps < trainer.RampSteps || tr.ramped(0.3) != 0.3 {
		t.Fatalf("full rate after %d steps, at %v", steps, tr.ramped(0.3))
	}
}

// TestRejoinedEqualsFresh: after Rejoin the optimizer knows no more than a new one does.
func TestRejoinedEqualsFresh(t *testing.T) {
	job := digitsJob(t, nil)
	ctx := t.Context()
	fresh, old := started(t, job), started(t, job)
	var base bytes.Buffer
	if err := fresh.Save(ctx, &base); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Train(ctx, 5, nil); err != nil {
		t.Fatal(err)
	}
	var got [2]bytes.Buffer
	for i, tr := range []*Trainer{fresh, old} {
		if err := tr.Rejoin(ctx); err != nil {
			t.Fatal(err)
		}
		if err := tr.Load(ctx, bytes.NewReader(base.Bytes())); err != nil {
			t.Fatal(err)
		}
		if _, err := tr.Train(ctx, 0, nil); err != nil {
			t.Fatal(err)
		}
		if err := tr.Save(ctx, &got[i]); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got[0].Bytes(), got[1].Bytes()) {
		t.Fatal("a rejoined trainer and a fresh one train differently")
	}
}

// TestRejoinOfSGDChangesNothing: an idle slot under load came back with a ramp and its delta was a fiftieth of the others'.
func TestRejoinOfSGDChangesNothing(t *testing.T) {
	tr := started(t, digitsJob(t, func(s *run.Spec) { s.Optimizer = run.Optimizer{Kind: run.OptimizerSGD, LR: 0.1} }))
	if err := tr.Rejoin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := tr.ramped(0.1); got != 0.1 {
		t.Fatalf("the rate after rejoining is %v of 0.1", got)
	}
}
