package inference_test

import (
	"math"
	"testing"
	"time"

	"tensorturn/domain"
)

// Members vote; the answer says who named what and how many took part.
func TestEnsembleVotes(t *testing.T) {
	w := newWorld(t)
	v := w.ensemble(0, 0, 1)
	a, err := w.engine.Predict(t.Context(), v, []float32{0, 4})
	if err != nil {
		t.Fatal(err)
	}
	if a.Class[0] != 0 || a.Class[1] != 1 || a.Used != 3 {
		t.Errorf("%+v", a)
	}
	for i, want := range []int{2, 1, 0, 0, 2, 1} {
		if a.Votes[i] != want {
			t.Errorf("votes %v", a.Votes)
			break
		}
	}
	if math.Abs(a.Agreement[0]-2.0/3) > 1e-9 || math.Abs(float64(a.Probabilities[0])-(0.8+0.8+0.1)/3) > 1e-6 {
		t.Errorf("%+v", a)
	}
}

// A member whose weights are damaged leaves the vote; it comes back when they are whole. Without any there is no answer.
func TestMemberLeavesTheVote(t *testing.T) {
	w := newWorld(t)
	v := w.ensemble(0, 0, 1)
	repair := w.damage(v.Members[2].Weights)
	if err := w.engine.Check(t.Context(), v); err == nil {
		t.Error("an ensemble with a damaged member may be deployed")
	}
	a, err := w.engine.Predict(t.Context(), v, []float32{0})
	if err != nil || a.Used != 2 || a.Agreement[0] != 1 {
		t.Fatalf("%+v %v", a, err)
	}
	repair()
	w.later(6 * time.Second)
	if a, err := w.engine.Predict(t.Context(), v, []float32{0}); err != nil || a.Used != 3 {
		t.Errorf("%+v %v", a, err)
	}
	none := w.ensemble(7, 8)
	for _, m := range none.Members {
		w.damage(m.Weights)
	}
	if _, err := w.engine.Predict(t.Context(), none, []float32{0}); err == nil {
		t.Error("an answer of nobody")
	}
	if _, err := w.engine.Predict(t.Context(), v, []float32{-1}); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("a wrong row: %v", err)
	}
}
