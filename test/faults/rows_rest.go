package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"tensorturn/domain"
	"tensorturn/projections/runs"
	"tensorturn/test/plain"
)

func clockRows() []row {
	return []row{
		{part: "clock", fault: "one machine an hour ahead, one an hour behind", expect: "both join, train and upload: the hub's time counts",
			mutation: "they are 20 years ahead: the hub's certificate is over", run: agentClocks},
		{part: "clock", fault: "hub an hour ahead, then started again an hour behind", expect: "no lease lost to it; the log goes on",
			mutation: "an hour becomes 20 years: its certificate is over", run: hubClock},
		{part: "format", fault: "started on the store of the previous format", expect: "verifies, shows and finishes the run it holds; its machines come back",
			mutation: "one byte of the old log is changed", quick: true, run: previousFormat},
	}
}

// shift gives a process its own clock, d away.
func (w *world) shift(name, d string) []string {
	file := filepath.Join(w.Dir, name+".clock")
	w.Must(os.WriteFile(file, []byte(d), 0o600))
	return []string{"TENSORTURN_CLOCK=" + file}
}

func agentClocks(w *world) {
	w.up()
	ahead, behind := "1h", "-1h"
	if w.mutant {
		ahead, behind = "175200h", "175200h"
	}
	for name, d := range map[string]string{"ahead": ahead, "behind": behind} {
		env := w.shift(name, d)
		w.Env = env // of the command that joins as well
		w.Join(name)
		w.agents[name] = w.SpawnAgent(name, "--throttle", slow)
		w.Env = nil
		w.AwaitMachine(name, "online")
	}
	id := w.submit(16)
	r := w.ended(id)
	w.unharmed(r)
	a, b := w.of(r, "ahead"), w.of(r, "behind")
	if a.Samples == 0 || b.Samples == 0 {
		w.Errorf("counted %d and %d samples", a.Samples, b.Samples)
	}
	w.see("%d and %d samples counted", a.Samples, b.Samples)
}

func hubClock(w *world) {
	ahead, behind := "1h", "-1h"
	if w.mutant {
		behind = "175200h"
	}
	w.Env = w.shift("hub", ahead)
	w.StartHub("--min-free", "1048576")
	w.witness = watch(w)
	w.Env = nil
	for _, n := range []string{"a", "b"} {
		w.agents[n] = w.StartAgent(n, "--throttle", slow)
	}
	id := w.submit(24)
	w.halfway(id, 0.3)
	w.Hub.Kill()
	w.Env = w.shift("hub", behind)
	w.StartHub("--min-free", "1048576")
	w.Env = nil
	w.halfway(id, 0.6)
	before := w.of(w.show(id), "a").Copied
	w.agents["a"].Kill() // time must go on: a machine that is gone is noticed
	w.AwaitMachine("a", "lost")
	r := w.ended(id)
	copied := w.of(r, "a").Copied - before
	if n := r.Totals.Expired; n > 1 || n+copied == 0 { // copies may be done before its lease runs out
		w.Errorf("%d leases expired and %d of its chunks were copied: want one, or its chunks copied", n, copied)
	}
	w.see("two hours back between two starts; the killed machine was noticed, nobody else lost a lease")
}

// previousFormat starts today's program on a folder that an earlier one left behind, killed in the middle of a batch.
func previousFormat(w *world) {
	archive, err := filepath.Abs(filepath.Join(w.root, "test/faults/testdata/store-2026-11-30.tgz"))
	w.Must(err)
	out, err := exec.Command("tar", "-xzf", archive, "-C", w.Dir).CombinedOutput()
	if err != nil {
		w.Fatalf("tar: %v %s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // its port of then may be somebody else's
	w.Must(err)
	w.URL = "https://" + l.Addr().String()
	w.Must(l.Close())
	if w.mutant {
		for _, b := range w.Blocks("EVENTS") {
			w.Flip(b, 20_000, 1)
		}
	}
	w.Must(os.Remove(w.Context()))
	w.StartHub("--min-free", "1048576")
	w.witness = watch(w)
	if s := w.Run("log", "verify"); s.Code != 0 {
		w.Fatalf("log verify: exit code %d, %s", s.Code, firstLine(s.Err))
	}
	var all []runs.Run
	w.JSON(&all, "run", "list")
	if len(all) != 1 || all[0].Name != "golden" || all[0].Ledger.Counted != 3200 || all[0].Rounds.Merged != 5 {
		w.Fatalf("the old log shows %d runs: %+v", len(all), all)
	}
	for _, n := range []string{"a", "b"} {
		file := filepath.Join(w.AgentDir(n), "agent.json")
		b, err := os.ReadFile(file)
		w.Must(err)
		var keys map[string]any
		w.Must(json.Unmarshal(b, &keys))
		keys["hub"] = w.URL
		b, err = json.Marshal(keys)
		w.Must(err)
		w.Must(os.WriteFile(file, b, 0o600))
		w.agents[n] = w.SpawnAgent(n, "--throttle", "0.01")
	}
	r := w.ended(all[0].ID)
	w.see("the run went on from 3200 to %d samples, all %d merges computed again", r.Ledger.Counted, r.Rounds.Merged)
}

func trainerRows() []row {
	return []row{
		{part: "trainer", fault: "exits, is killed, and hangs, once each", expect: "each time its chunks are trained again; the run ends",
			mutation: "it exits every time", run: trainerFails},
		{part: "trainer", fault: "its weights become NaN, once", expect: "found before they reach the model; its chunks are trained again",
			mutation: "they do every time", quick: true, run: trainerNaN},
	}
}

// asTrainer is the first argument with which this program is an owner's own trainer: the second names a file with the way in
// which the first that finds it misbehaves.
const asTrainer = "as-trainer"

// beTrainer is the trainer. The mode's file is taken by renaming it, so that one process misbehaves and its successors do not.
func beTrainer(files []string) {
	for _, f := range files {
		if strings.HasSuffix(f, ".always") {
			b, err := os.ReadFile(f)
			if err == nil {
				plain.Main(string(b))
				return
			}
		}
		taken := f + ".taken"
		if os.Rename(f, taken) == nil {
			b, err := os.ReadFile(taken)
			if err != nil {
				panic(err)
			}
			plain.Main(string(b))
			return
		}
	}
	plain.Main("good")
}

// asSteady is the first argument with which this program is a trainer of a steady speed.
const asSteady = "as-steady-trainer"

// owned submits a run of this program as trainer that misbehaves in the given ways, one after another.
func (w *world) owned(modes ...string) domain.RunID {
	exe, err := os.Executable()
	w.Must(err)
	code := w.TempDir()
	w.Must(os.WriteFile(filepath.Join(code, "README"), []byte("the program is elsewhere\n"), 0o600))
	var files []string
	for i, m := range modes {
		f := filepath.Join(w.Dir, fmt.Sprintf("mode.%d", i))
		if w.mutant {
			f += ".always"
		}
		w.Must(os.WriteFile(f, []byte(m), 0o600))
		files = append(files, f)
	}
	words, err := json.Marshal(append([]string{exe, asTrainer}, files...))
	w.Must(err)
	return w.Submit(fmt.Sprintf("name: owned\ntrainer: process\ncommand: %s\ncode: %s\nbatch: 8\nchunk: 40\nepochs: 8\nround: {chunks: 20}\nkeep_every: 1\ndata: {samples: 400, heldout: 40, features: %d, classes: %d}\n",
		words, code, plain.Features, plain.Classes))
}

func trainerFails(w *world) {
	w.up("a", "b")
	modes := []string{"exit 1", "SIGKILL", "hang"}
	id := w.owned(modes...)
	r := w.ended(id)
	if r.Totals.TaskFails < 2 {
		w.Errorf("%d failures of the program are told, two were made", r.Totals.TaskFails)
	}
	w.see("%d failures told, %d leases lost, every chunk once", r.Totals.TaskFails, r.Totals.Expired)
}

func trainerNaN(w *world) {
	w.up("a", "b")
	id := w.owned("NaN weights")
	r := w.ended(id)
	// The agent finds most of it before it uploads, the hub's gate the rest.
	if n := r.Totals.TaskFails + r.Totals.Refused; n != 1 {
		w.Errorf("told %d failures and %d refusals, one should be", r.Totals.TaskFails, r.Totals.Refused)
	}
	w.see("%d failure told, %d refused at the gate; %d samples counted, model finite (each merge verified)", r.Totals.TaskFails, r.Totals.Refused, r.Ledger.Counted)
}
