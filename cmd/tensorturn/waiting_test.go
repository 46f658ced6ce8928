package main

import (
	"strings"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
	"tensorturn/projections/fleet"
	"tensorturn/projections/runs"
)

func box(name string, standing machine.Standing) fleet.Machine {
	id := domain.MachineID(name + "-1")
	return fleet.Machine{ID: id, Name: name, Standing: standing, Slots: []fleet.Slot{{Slot: domain.Slot(id, 0)}}}
}

func TestWaits(t *testing.T) {
	sick := box("laptop", machine.Online)
	sick.Quarantined = "three refusals in a row"
	leaving := box("desktop", machine.Online)
	leaving.Draining = true
	busy := box("tower", machine.Online)
	busy.Slots[0].Run = "r-2"
	twin := box("laptop", machine.Online)
	twin.ID = "laptop-2"
	training := runs.Run{ID: "r-1", Phase: run.PhaseTraining}
	with := func(f func(*runs.Run)) runs.Run { r := training; f(&r); return r }
	for name, c := range map[string]struct {
		r    runs.Run
		ms   []fleet.Machine
		want string
	}{
		"all is well":    {training, []fleet.Machine{box("a", machine.Online), box("gone", machine.Revoked)}, ""},
		"nobody":         {training, nil, "no machine has joined: tensorturn token create"},
		"all away":       {training, []fleet.Machine{box("a", machine.Lost), box("b", machine.Enrolled)}, "no machine is online (the pool has 2)"},
		"one away":       {training, []fleet.Machine{box("a", machine.Online), box("b", machine.Enrolled)}, "1 of 2 machines works; b was never online"},
		"quarantined":    {training, []fleet.Machine{box("a", machine.Online), sick}, "1 of 2 machines works; laptop quarantined (three refusals in a row): tensorturn machine resume laptop"},
		"names its twin": {training, []fleet.Machine{twin, sick}, "1 of 2 machines works; laptop-1 quarantined (three refusals in a row): tensorturn machine resume laptop-1"},
		"none can work":  {training, []fleet.Machine{leaving}, "0 of 1 machines work; desktop is draining"},
		"paused": {with(func(r *runs.Run) { r.Paused = "by operator" }), []fleet.Machine{box("a", machine.Lost)},
			"paused (by operator): resume with: tensorturn run resume r-1"},
		"stalled": {with(func(r *runs.Run) { r.Rounds = runs.Rounds{Open: 3, Counted: 1, Chunks: 10, Stalled: true} }), []fleet.Machine{box("a", machine.Online)},
			"round 3 is stalled: 1 of 10 chunks counted at its deadline, which was doubled"},
		"first weights": {with(func(r *runs.Run) { r.Phase = run.PhaseSubmitted }), []fleet.Machine{box("a", machine.Online)}, "waiting for its first weights"},
		"other run":     {with(func(r *runs.Run) { r.Phase = run.PhaseSubmitted }), []fleet.Machine{busy}, "every slot works for another run"},
		"evaluating":    {with(func(r *runs.Run) { r.Phase = run.PhaseEvaluating }), []fleet.Machine{box("a", machine.Online)}, "waiting for evaluation"},
		"ended":         {with(func(r *runs.Run) { r.Phase = run.PhaseFailed }), nil, ""},
	} {
		if got := waits(c.r, c.ms, ""); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	var away []fleet.Machine
	for _, n := range strings.Split("a b c d e f g", " ") {
		away = append(away, box(n, machine.Suspect))
	}
	if got := waits(training, append(away, box("z", machine.Online)), ""); !strings.HasPrefix(got, "1 of 8 machines works; a is suspect;") || !strings.HasSuffix(got, "; and 3 more") {
		t.Errorf("many: %q", got)
	}
}

func TestChunkHint(t *testing.T) {
	slot := func(chunks int, seconds float64) runs.Run {
		return runs.Run{Slots: []*runs.Slot{{Chunks: chunks, Seconds: seconds}, {}}}
	}
	for name, c := range map[string]struct {
		r    runs.Run
		want string
	}{
		"no speed yet":          {slot(0, 0), ""},
		"long enough, just":     {slot(100, 10), ""},
		"a little below":        {slot(100, 9.9), "chunks last 99 ms: raise chunk for less overhead"},
		"far below":             {slot(100, 0.2), "chunks last 2 ms: raise chunk for less overhead"},
		"below one millisecond": {slot(1000, 0.25), "chunks last 0.25 ms: raise chunk for less overhead"},
	} {
		if got := chunkHint(c.r); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
