package main

import (
	"strings"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// What has no effect is hidden, what is a rule is told in words, and everything else is shown.
func TestSettings(t *testing.T) {
	resolve := func(s run.Spec, d run.Dataset) map[string]string {
		t.Helper()
		s, err := run.Resolve(s, d)
		if err != nil {
			t.Fatal(err)
		}
		shown := map[string]string{}
		for _, r := range settings(s) {
			shown[r[0]] = r[1]
		}
		return shown
	}
	blob := domain.Digest(strings.Repeat("a", 64))
	table := run.Dataset{Blob: blob, Samples: 100, Heldout: 20, Features: 4, Classes: 3, Block: 100}
	builtin := resolve(run.Spec{Data: run.Data{Path: "x.csv"}}, table)
	for name, want := range map[string]string{"round.deadline_seconds": "4 × the expected time of the round", "max_chunks_per_contribution": "no limit",
		"codec_down": "fp32: machines fetch the next base whole", "evaluate_every": "the final model only", "keep_every": "every 10 rounds, and the last three", "optimizer.beta1": "0.9", "model.hidden": "[64]", "outer.lr": "1", "data.holdout": "0.2"} {
		if builtin[name] != want {
			t.Errorf("builtin: %s is %q, want %q", name, builtin[name], want)
		}
	}
	sgd := resolve(run.Spec{Data: run.Data{Path: "x.csv"}, Optimizer: run.Optimizer{Kind: "sgd", Clip: -1}, Schedule: run.Schedule{Kind: "constant"}, KeepEvery: 1,
		Round: run.Round{Deadline: 90}}, table)
	if sgd["optimizer.clip"] != "off" || sgd["keep_every"] != "every round" || sgd["round.deadline_seconds"] != "90" {
		t.Errorf("%v", sgd)
	}
	spec := run.Spec{Trainer: "process", Command: []string{"python", "cnn.py"}, Data: run.Data{Samples: 1000}}
	process := resolve(spec, run.ProcessData(spec, blob))
	if process["command"] != "[python cnn.py]" || process["data.samples"] != "1000" || process["data.heldout"] != "none: the script does not evaluate" {
		t.Errorf("%v", process)
	}
	for name, c := range map[string]struct {
		shown map[string]string
		names string
	}{
		"builtin": {builtin, "network container predict command python code data.samples data.heldout data.features data.classes"},
		"sgd":     {sgd, "optimizer.beta1 optimizer.beta2 schedule.warmup schedule.floor command"},
		"process": {process, "model.kind model.hidden optimizer.kind optimizer.lr schedule.kind data.path data.label data.holdout python code container predict"},
	} {
		for setting, v := range c.shown {
			if v == "" {
				t.Errorf("%s: %s is shown without a value", name, setting)
			}
		}
		for _, hidden := range strings.Fields(c.names) {
			if v, ok := c.shown[hidden]; ok {
				t.Errorf("%s: %s has no effect and is shown as %q", name, hidden, v)
			}
		}
	}
}
