package torch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/projections/replay"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
)

// lease of these pools: a script takes seconds to import torch, and an evaluation takes some more.
const lease = 12 * time.Second

// startPool starts a hub and agents with the interpreter.
func startPool(t *testing.T, names ...string) (*kit.Pool, map[string]*kit.Process) {
	t.Helper()
	py := python(t)
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	agents := map[string]*kit.Process{}
	for _, name := range names {
		agents[name] = p.StartAgent(name, "--python", py, "--threads", "1") // they share this computer's cores
	}
	return p, agents
}

// submit starts the run of a spec in the examples, with lines replaced.
func submit(t *testing.T, p *kit.Pool, spec string, replaced ...string) domain.RunID {
	t.Helper()
	examples, err := filepath.Abs("../../examples/torch")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(examples, spec))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(replaced...).Replace(string(b))
	keep := "keep_every: 1\n"
	if strings.Contains(text, "mode: ensemble") {
		keep = "" // members are not merged
	}
	return p.Submit(text + "\n" + keep + "code: " + examples + "\n")
}

// checkRun demands a complete run: ledger exact, every merge recomputed bit for bit.
func checkRun(t *testing.T, p *kit.Pool, r runs.Run) {
	t.Helper()
	if r.Phase != run.PhaseCompleted {
		t.Fatalf("the run is %s: %s", r.Phase, r.Reason)
	}
	if r.Ledger.Expected == 0 || r.Ledger.Counted != r.Ledger.Expected {
		t.Errorf("%d of %d samples counted", r.Ledger.Counted, r.Ledger.Expected)
	}
	var v replay.Report
	p.JSON(&v, "run", "replay", string(r.ID), "--verify")
	if v.Verdict != "bit-exact" || v.Recomputed != v.Rounds || v.Rounds != r.Rounds.Merged {
		t.Errorf("replay says %+v of %d merged rounds", v, r.Rounds.Merged)
	}
	if len(r.Evaluations) == 0 {
		t.Fatal("it was not evaluated")
	}
}

// awaitEnd waits longer than the kit does: training takes minutes on two cores.
func awaitEnd(t *testing.T, p *kit.Pool, id domain.RunID, limit time.Duration) runs.Run {
	t.Helper()
	deadline, tick := time.Now().Add(limit), time.NewTicker(200*time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		r, ok := p.Show(id)
		if ok && r.Phase.Ended() {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s the run is %s with %d of %d samples", limit, r.Phase, r.Ledger.Counted, r.Ledger.Expected)
		}
	}
}

// A plain classifier, two agents.
func TestPoolTrainsAScript(t *testing.T) {
	p, _ := startPool(t, "a", "b")
	r := awaitEnd(t, p, submit(t, p, "mlp.yaml"), 4*time.Minute)
	checkRun(t, p, r)
	last := r.Evaluations[len(r.Evaluations)-1]
	t.Logf("accuracy %.4f on %d samples, %d rounds", last.Accuracy, last.Samples, r.Rounds.Merged)
	if last.Accuracy < 0.7 || last.Samples != 1000 {
		t.Errorf("accuracy %.4f on %d samples", last.Accuracy, last.Samples)
	}
	for _, s := range r.Slots {
		t.Logf("%s: %d samples", s.Slot, s.Samples)
	}
	opensInTorch(t, p, r, "nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))")
}

// opensInTorch loads the exported model with plain torch and json, as an owner without this project would.
func opensInTorch(t *testing.T, p *kit.Pool, r runs.Run, model string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	p.Must("model", "export", string(r.ID), dir)
	text := fmt.Sprintf(`
import json, struct, torch
from torch import nn
raw = open(%q, "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
head = json.loads(raw[8:8+n])
assert head.pop("__metadata__")["format"] == "pt"
state = {k: torch.frombuffer(bytearray(raw[8+n+v["data_offsets"][0]:8+n+v["data_offsets"][1]]), dtype=torch.float32).reshape(v["shape"]) for k, v in head.items()}
%s.load_state_dict(state)
print("loaded")
`, filepath.Join(dir, "model.safetensors"), model)
	if out := runScript(t, text); !strings.Contains(out, "loaded") {
		t.Error(out)
	}
	package_ := os.Getenv("TENSORTURN_TEST_SAFETENSORS")
	if package_ == "" {
		t.Log("TENSORTURN_TEST_SAFETENSORS names no folder with the package safetensors: not opened by it")
		return
	}
	text = fmt.Sprintf(`
import sys
sys.path.insert(0, %q)
from safetensors.torch import load_file, save_file
import tensorturn, torch
theirs, ours = load_file(%q), tensorturn.load_file(%q)
assert theirs.keys() == ours.keys() and all(torch.equal(theirs[k], ours[k]) for k in ours)
all_kinds = {"f": torch.randn(3, 2), "h": torch.ones(2, dtype=torch.float16), "b": torch.ones(5, dtype=torch.bfloat16), "i": torch.arange(4), "n": torch.tensor([True]), "e": torch.empty(0)}
tensorturn.save_file(all_kinds, "%[4]s/ours")
save_file(all_kinds, "%[4]s/theirs")
for a in (load_file("%[4]s/ours"), tensorturn.load_file("%[4]s/theirs")):
    assert a.keys() == all_kinds.keys() and all(torch.equal(a[k], all_kinds[k]) and a[k].dtype == all_kinds[k].dtype for k in a)
print("the package agrees")
`, package_, filepath.Join(dir, "model.safetensors"), filepath.Join(dir, "model.safetensors"), dir)
	if out := runScript(t, text); !strings.Contains(out, "the package agrees") {
		t.Error(out)
	}
	t.Log("the model opens in plain torch and in the package safetensors")
}

// The script of the fused run, unchanged, as an ensemble of three on two machines; its members answer the held-out rows and
// vote, and each opens in plain torch.
func TestFashionEnsemble(t *testing.T) {
	p, _ := startPool(t, "a", "b")
	id := submit(t, p, "cnn-ensemble.yaml", "[python, cnn.py]", `[python, cnn.py, "3000", "1000"]`, "samples: 60000, heldout: 10000", "samples: 3000, heldout: 1000")
	r := awaitEnd(t, p, id, 8*time.Minute)
	if r.Phase != run.PhaseCompleted || len(r.Members) != 3 || r.Vote == nil {
		t.Fatalf("the run is %s: %s, %d members", r.Phase, r.Reason, len(r.Members))
	}
	for _, m := range r.Members {
		t.Logf("%+v", *m)
	}
	t.Logf("%+v", *r.Vote)
	dir := filepath.Join(t.TempDir(), "model")
	p.Must("model", "export", string(r.ID), dir)
	found, err := filepath.Glob(filepath.Join(dir, "members", "*", "model.safetensors"))
	if err != nil || len(found) != 3 {
		t.Fatalf("%v, %v", found, err)
	}
	out := runScript(t, fmt.Sprintf(`
import tensorturn
members = [tensorturn.load_file(f) for f in %q.split()]
assert all(m.keys() == members[0].keys() for m in members)
print(len({m["0.weight"].sum().item() for m in members}), "different")
`, strings.Join(found, " ")))
	if !strings.Contains(out, "3 different") {
		t.Error(out)
	}
}

// A script without the helper is a member when it writes safetensors, without a word in the spec: it is exported, and has no vote.
func TestScriptWithoutTheHelper(t *testing.T) {
	p, _ := startPool(t, "a")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte(strings.Join(readLines(t, "ensemble.after.py"), "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	id := p.Submit("mode: ensemble\ntrainer: process\ncommand: [python, train.py]\nbatch: 8\nepochs: 1\nensemble: {members: 2}\ndata: {samples: 1000}\ncode: " + dir + "\n")
	r := awaitEnd(t, p, id, 4*time.Minute)
	if r.Phase != run.PhaseCompleted || len(r.Members) != 2 {
		t.Fatalf("%s: %s", r.Phase, r.Reason)
	}
	p.Must("model", "export", string(r.ID), filepath.Join(dir, "model"))
	if found, _ := filepath.Glob(filepath.Join(dir, "model", "members", "*", "model.safetensors")); len(found) != 2 {
		t.Errorf("%v", found)
	}
}

// A script that always fails ends the run, and its owner reads why.
func TestBadScriptEndsTheRun(t *testing.T) {
	p, _ := startPool(t, "a")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte(strings.ReplaceAll(script("step", `raise KeyError("lr")`), "{", "{")), 0o600); err != nil {
		t.Fatal(err)
	}
	id := p.Submit("trainer: process\ncommand: [python, train.py]\nbatch: 8\nchunk: 24\nepochs: 1\ndata: {samples: 100, heldout: 40}\ncode: " + dir + "\n")
	r := awaitEnd(t, p, id, 2*time.Minute)
	if r.Phase != run.PhaseFailed || !strings.Contains(r.Reason, "KeyError: 'lr'") {
		t.Errorf("%s: %s", r.Phase, r.Reason)
	}
}

// alone trains the same script without an agent and gives its accuracy.
func alone(t *testing.T, script string, epochs int, args ...string) (accuracy float64) {
	t.Helper()
	dir, err := filepath.Abs("../../examples/torch")
	if err != nil {
		t.Fatal(err)
	}
	helper, err := filepath.Abs(helperDir)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python(t), append([]string{filepath.Join(dir, script)}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+helper, "OMP_NUM_THREADS=2", "PYTHONDONTWRITEBYTECODE=1", fmt.Sprintf("TENSORTURN_EPOCHS=%d", epochs), "TENSORTURN_SEED="+args[2])
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(out), "accuracy %f", &accuracy); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return accuracy
}

// A convolutional network on Fashion-MNIST with the four-line script: three agents, one killed on the way and started
// again, against the script alone on the same number of samples. -full takes three seeds; -small a sixth of the samples, in
// shorter rounds.
func TestFashion(t *testing.T) {
	samples, seeds, epochs, margin := 60000, 1, 4, 0.01
	switch {
	case *full:
		seeds = 3
	case *small:
		samples, margin = 10000, 0.04 // 625 steps alone, some 200 on each of three agents: too few to be level
	}
	meanAlone, meanPool := 0.0, 0.0
	for seed := 1; seed <= seeds; seed++ {
		a := alone(t, "cnn.py", epochs, fmt.Sprint(samples), "10000", fmt.Sprint(seed))
		b := fashion(t, samples, epochs, seed)
		t.Logf("seed %d: alone %.4f, pool %.4f", seed, a, b)
		meanAlone, meanPool = meanAlone+a/float64(seeds), meanPool+b/float64(seeds)
	}
	t.Logf("%d samples × %d epochs, %d seed(s): alone %.4f, pool %.4f", samples, epochs, seeds, meanAlone, meanPool)
	if meanPool < meanAlone-margin {
		t.Errorf("the pool reaches %.4f, the script alone %.4f", meanPool, meanAlone)
	}
}

// fashion is one run of three agents; it gives the accuracy.
func fashion(t *testing.T, samples, epochs, seed int) float64 {
	t.Helper()
	p, agents := startPool(t, "a", "b", "c")
	id := submit(t, p, "cnn.yaml", "[python, cnn.py]", fmt.Sprintf("[python, cnn.py, %q, \"10000\", %q]", fmt.Sprint(samples), fmt.Sprint(seed)),
		"epochs: 4", fmt.Sprintf("epochs: %d\nseed: %d", epochs, seed), "samples: 60000", fmt.Sprintf("samples: %d", samples), "chunks: 59", fmt.Sprintf("chunks: %d", 59*samples/60000))
	victim, ok := p.Machine("a")
	if !ok {
		t.Fatal("no machine a")
	}
	p.AwaitRun(id, "a to hold work in the second round or later", func(r runs.Run) bool { return r.Rounds.Merged >= 1 && kit.SlotOf(r, victim).Holding >= 1 })
	agents["a"].Kill()
	p.SpawnAgent("a", "--python", python(t), "--threads", "1")
	r := awaitEnd(t, p, id, 15*time.Minute)
	checkRun(t, p, r)
	last := r.Evaluations[len(r.Evaluations)-1]
	lost := kit.SlotOf(r, victim)
	t.Logf("accuracy %.4f, loss %.4f, %d rounds, %d steals, victim: %d leases expired, %d chunks requeued", last.Accuracy, last.Loss, r.Rounds.Merged, r.Totals.Steals, lost.Expired, lost.Requeued)
	if r.Rounds.Merged < 5 || lost.Expired < 1 {
		t.Errorf("%d rounds, %d leases expired", r.Rounds.Merged, lost.Expired)
	}
	for _, name := range []string{"b", "c"} {
		m, _ := p.Machine(name)
		share := float64(kit.SlotOf(r, m).Samples) / float64(r.Ledger.Counted)
		t.Logf("%s counted %.1f %% of the samples", name, 100*share)
		if share < 0.2 {
			t.Errorf("%s counted %.1f %%", name, 100*share)
		}
	}
	opensInTorch(t, p, r, "nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))")
	return last.Accuracy
}
