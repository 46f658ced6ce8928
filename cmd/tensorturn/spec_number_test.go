package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"tensorturn/domain/run"
)

// The decoder cuts fractions off; whole numbers in any spelling are taken.
func TestFractionsAreRefused(t *testing.T) {
	for _, c := range []struct{ text, why string }{
		{"epochs: 1.5", "line 2: epochs is 1.5, which is no whole number"},
		{"batch: 32.9", "batch is 32.9"},
		{"seed: 0.5", "seed is 0.5"},
		{"priority: 2.9", "priority is 2.9"},
		{"round: {chunks: 2.5}", "round.chunks is 2.5"},
		{"model: {hidden: [64, 64.5]}", "model.hidden is 64.5"},
		{"data: {shape: [2.5, 3]}", "data.shape is 2.5"},
		{"mode: ensemble\nensemble: {members: 4.7}", "line 3: ensemble.members is 4.7"},
		{"ensemble: {recipe: {grid: {epochs: [3, 4.5]}}}", "ensemble.recipe.grid.epochs is 4.5"},
		{"ensemble: {recipe: {grid: {hidden: [[3], [4.5]]}}}", "ensemble.recipe.grid.hidden is 4.5"},
		{"requirements: {gpu: {count: 1.5}}", "requirements.gpu.count is 1.5"},
		{"epochs: 2.0", ""}, {"epochs: 1e3", ""}, {"optimizer: {lr: 0.5}", ""}, {"ensemble: {recipe: {grid: {lr: [0.5]}}}", ""},
	} {
		_, err := parseSpec("x", []byte("name: x\n"+c.text))
		if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v", c.text, err)
		}
	}
}

// A 0 that would be taken for the default is refused by line and key; where 0 means something it is taken.
func TestZerosAreNoDefaults(t *testing.T) {
	for _, c := range []struct{ text, why string }{
		{"data: {holdout: 0}", "line 2: data.holdout is 0"},
		{"data: {holdout: 0.0}", "line 2: data.holdout is 0.0"},
		{"epochs: 0", "epochs is 0"},
		{"epochs: -0", "epochs is -0"},
		{"optimizer:\n  clip: 0", "line 3: optimizer.clip is 0"},
		{"ensemble: {recipe: {features: 0}}", "ensemble.recipe.features is 0"},
		{"priority: 0", ""}, {"evaluate_every: 0", ""}, {"outer: {momentum: 0}", ""}, {"optimizer: {weight_decay: 0}", ""}, {"epochs:", ""},
		{"round: {deadline_seconds: 0}", ""}, {"trainer: process\ndata: {heldout: 0, holdout: 0}", ""},
	} {
		_, err := parseSpec("x", []byte("name: x\n"+c.text))
		if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v", c.text, err)
		}
	}
}

// Every number that a default replaces is among them.
func TestEveryDefaultIsGuarded(t *testing.T) {
	found := map[string]bool{}
	note := func(s run.Spec) {
		filled, err := run.Defaults(s)
		if err != nil {
			t.Fatal(err)
		}
		changed("", reflect.ValueOf(s), reflect.ValueOf(filled), found)
	}
	data := run.Data{Path: "x.csv"}
	note(run.Spec{Data: data})
	note(run.Spec{Data: data, Mode: run.ModeEnsemble, Ensemble: &run.Ensemble{}, Requirements: &run.Requirements{GPU: &run.GPUNeed{}}})
	note(run.Spec{Data: run.Data{Path: "x", Format: run.FormatText}, Model: run.Model{Kind: run.ModelTransformer}})
	for path := range found {
		if notZero[path] == "" {
			t.Errorf("%s: 0 is taken for the default", path)
		}
	}
	if len(found) < len(notZero)-1 { // round.chunks waits for the data
		t.Errorf("only %d defaults: %v", len(found), found)
	}
}

// changed notes the numbers that are 0 in a and not in b.
func changed(at string, a, b reflect.Value, found map[string]bool) {
	switch {
	case a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil():
		changed(at, a.Elem(), b.Elem(), found)
	case a.Kind() == reflect.Struct:
		for i := range a.NumField() {
			name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("yaml"), ",")
			changed(strings.TrimPrefix(at+"."+name, "."), a.Field(i), b.Field(i), found)
		}
	case (a.CanInt() || a.CanUint() || a.CanFloat()) && fmt.Sprint(a) == "0" && fmt.Sprint(b) != "0":
		found[at] = true
	}
}
