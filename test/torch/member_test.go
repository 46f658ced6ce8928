package torch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/process"
	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
)

// A member that goes on from a checkpoint on another machine ends with the bits that it would have had without the break:
// weights, AdamW's moments, BatchNorm's counters, dropout's random state, the place of the schedule.
func TestKeepAndResume(t *testing.T) {
	text := script("model", "nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))",
		"join", ", heldout=torch.utils.data.TensorDataset(x[100:], y[100:]), scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 26)")
	job := scriptJob(t, text, func(s *run.Spec) { s.Mode = run.ModeEnsemble })
	job.Member = 2
	chunks := run.TotalChunks(job.Spec, job.Dataset)
	begin := func() *process.Trainer {
		tr, err := opener(t).Open(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tr.Close() })
		return tr.(*process.Trainer)
	}
	train := func(tr trainer.Trainer, from, to int) {
		for c := from; c < to; c++ {
			if _, err := tr.Train(t.Context(), domain.ChunkID(c), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	end := func(tr *process.Trainer) (state, answers bytes.Buffer) {
		out, m, err := tr.Outputs(t.Context(), nil)
		if err != nil || m.Samples != 40 {
			t.Fatalf("%+v, %v", m, err)
		}
		fmt.Fprint(&answers, out.Probabilities)
		if err := tr.SaveState(t.Context(), &state); err != nil {
			t.Fatal(err)
		}
		return state, answers
	}
	whole := begin()
	if err := whole.Init(t.Context()); err != nil || !whole.Keeps() {
		t.Fatal(err)
	}
	train(whole, 0, chunks/2)
	var half bytes.Buffer
	if err := whole.SaveState(t.Context(), &half); err != nil {
		t.Fatal(err)
	}
	train(whole, chunks/2, chunks)
	wantState, wantAnswers := end(whole)
	resumed := begin()
	if err := resumed.LoadState(t.Context(), bytes.NewReader(half.Bytes())); err != nil {
		t.Fatal(err)
	}
	train(resumed, chunks/2, chunks)
	state, answers := end(resumed)
	if !bytes.Equal(state.Bytes(), wantState.Bytes()) || answers.String() != wantAnswers.String() {
		t.Error("what goes on from a checkpoint has other bits")
	}
	t.Logf("%d chunks, resumed at %d on another agent: state of %d bytes and %d answers equal bit for bit", chunks, chunks/2, state.Len(), 40)
	forgetful := begin() // the test can fail: without the checkpoint the rest gives something else
	if err := forgetful.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	train(forgetful, chunks/2, chunks)
	if other, _ := end(forgetful); bytes.Equal(other.Bytes(), wantState.Bytes()) {
		t.Error("a member that began anew has the same bits: the comparison shows nothing")
	}
}

// A member's machine is killed; another goes on at the newest checkpoint, and the run leaves the bytes of one that nobody
// disturbed.
func TestKilledMemberGoesOnElsewhere(t *testing.T) {
	dir := t.TempDir()
	text := script("step", "optimizer.step(); time.sleep(0.03)", "join", ", heldout=torch.utils.data.TensorDataset(x[100:], y[100:])")
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte("import time\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	spec := "mode: ensemble\ntrainer: process\ncommand: [python, train.py]\nbatch: 8\nchunk: 24\nepochs: 12\nensemble: {members: 2, checkpoint_seconds: 0.5}\ndata: {samples: 100, heldout: 40, features: 6, classes: 3}\ncode: " + dir + "\n"
	exported := func(t *testing.T, p *kit.Pool, r runs.Run) (members [][]byte) {
		t.Helper()
		if r.Phase != run.PhaseCompleted || len(r.Members) != 2 || r.Vote == nil {
			t.Fatalf("the run is %s: %s", r.Phase, r.Reason)
		}
		out := filepath.Join(t.TempDir(), "model")
		p.Must("model", "export", string(r.ID), out)
		found, err := filepath.Glob(filepath.Join(out, "members", "*", "model.safetensors"))
		if err != nil || len(found) != 2 {
			t.Fatalf("%v, %v", found, err)
		}
		for _, f := range found {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			members = append(members, b)
		}
		return members
	}
	p, agents := startPool(t, "a", "b")
	want := exported(t, p, awaitEnd(t, p, p.Submit(spec), 4*time.Minute))
	id := p.Submit(spec)
	victim, ok := p.Machine("a")
	if !ok {
		t.Fatal("no machine a")
	}
	p.AwaitRun(id, "a's member to have a checkpoint", func(r runs.Run) bool {
		for _, m := range r.Members {
			if m.Saved > 0 && m.Weights == "" && m.Slot.Machine() == victim.ID {
				return true
			}
		}
		return false
	})
	agents["a"].Kill()
	r := awaitEnd(t, p, id, 4*time.Minute)
	got := exported(t, p, r)
	for k := range got {
		if !bytes.Equal(got[k], want[k]) {
			t.Errorf("member %d has other bytes than without the kill", k+1)
		}
	}
	resumed := 0
	for _, e := range p.Events() {
		if d, ok := e.Data.(*run.MemberRequeued); ok && e.Agg == string(id) && d.Checkpoint != "" {
			resumed++
		}
	}
	if resumed == 0 {
		t.Error("no member went on from a checkpoint: the test shows nothing")
	}
	t.Logf("%d times requeued at a checkpoint, both members equal byte for byte to those of the undisturbed run", resumed)
}
