package main

import (
	"testing"

	"tensorturn/domain/run"
	"tensorturn/domain/vote"
	"tensorturn/projections/runs"
)

// A list of runs tells of each what it is judged by, by name.
func TestHeldoutColumn(t *testing.T) {
	r2, mae := 0.875, 0.25
	for name, c := range map[string]struct {
		run  runs.Run
		want string
	}{
		"none yet":      {runs.Run{}, "-"},
		"classes":       {runs.Run{Evaluations: []run.Evaluated{{Accuracy: 0.5}, {Accuracy: 0.9667}}}, "accuracy 0.9667"},
		"numbers":       {runs.Run{Evaluations: []run.Evaluated{{R2: &r2, MAE: &mae, Loss: 3}}}, "R² 0.8750"},
		"equal numbers": {runs.Run{Evaluations: []run.Evaluated{{MAE: &mae, Loss: 3}}}, "mean absolute error 0.25"},
		"an ensemble":   {runs.Run{Vote: &runs.Vote{Result: vote.Result{Vote: vote.Score{Accuracy: 0.75}}}}, "vote accuracy 0.7500"},
	} {
		if got := heldout(c.run); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
