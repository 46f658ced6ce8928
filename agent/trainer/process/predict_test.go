package process

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"tensorturn/domain"
	"tensorturn/test/plain"
)

// serving gives a program that only predicts.
func serving(t *testing.T, mode string) *Trainer {
	t.Helper()
	job := jobFor(t, mode)
	job.Serve = true
	tr, err := newOpener(t, nil).Open(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	if err := tr.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tr.(*Trainer)
}

// Rows that a program refuses, or answers with what is no number, do not end it for others.
func TestRowsEndNoProgram(t *testing.T) {
	tr := serving(t, "picky")
	good := slices.Repeat([]float32{0.5}, plain.Features)
	want, err := tr.Predict(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		first float32
		why   string
	}{{plain.Refused, "refuses these rows: ValueError: too large"}, {plain.TooMuch, "not finite"}} {
		bad := slices.Clone(good)
		bad[0] = c.first
		if _, err := tr.Predict(t.Context(), bad); domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), c.why) || tr.Broken() {
			t.Errorf("%v: %v, broken %v", c.first, err, tr.Broken())
		}
		if got, err := tr.Predict(t.Context(), good); err != nil || !slices.Equal(got, want) {
			t.Errorf("after %v: %v, %v", c.first, got, err)
		}
	}
}

// A program that says ok without an answer is not taken to have given the last one again; one that died may only be closed.
func TestPredictionsThatBreakAProgram(t *testing.T) {
	for _, first := range []float32{plain.Unsaid, plain.Deadly} {
		tr := serving(t, "picky")
		row := make([]float32, plain.Features)
		if _, err := tr.Predict(t.Context(), row); err != nil {
			t.Fatal(err)
		}
		row[0] = first
		var f *Failure
		if y, err := tr.Predict(t.Context(), row); !errors.As(err, &f) || !tr.Broken() {
			t.Errorf("%v: %v, %v, broken %v", first, y, err, tr.Broken())
		}
	}
}

// A command that is started for each question fails for that question alone.
func TestPredictCommandFailsAlone(t *testing.T) {
	job := memberJob(t, "alone", nil)
	good := job.Spec.Predict
	job.Spec.Predict = []string{"sh", "-c", "exit 1"}
	tr := member(t, job)
	if _, err := tr.Train(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	row := make([]float32, plain.Features)
	var f *Failure
	if _, err := tr.Predict(t.Context(), row); !errors.As(err, &f) || tr.Broken() {
		t.Fatalf("%v, broken %v", err, tr.Broken())
	}
	tr.job.Spec.Predict = good
	if _, err := tr.Predict(t.Context(), row); err != nil {
		t.Error(err)
	}
}
