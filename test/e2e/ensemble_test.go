package e2e

import (
	"encoding/json"
	"os"
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

// An agent is killed in the middle of a member, and while another machine goes on with it the hub is killed too. The
// member resumes from its checkpoint elsewhere, as the log says; every member sees its data once; the vote is over all,
// and the log alone gives it again.
func TestEnsembleThroughKills(t *testing.T) {
	t.Parallel()
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	p.StartAgent("a", "--throttle", "0.02")
	victim := p.StartAgent("b", "--throttle", "0.02")
	id := p.Submit(ensemble(t, "model: {kind: mlp, hidden: [32]}\nbatch: 32\nepochs: 8\nchunk: 64\nensemble: {members: 3, checkpoint_seconds: 1, compare_single: true}\n"))
	p.AwaitMachine("b", "online")
	var member int
	p.AwaitRun(id, "a checkpoint of b", func(r runs.Run) bool {
		b, _ := p.Machine("b")
		for _, m := range r.Members {
			if m.Status == run.MemberTraining && m.Saved > 0 && m.Weights == "" && m.Slot.Machine() == b.ID {
				member = m.Number
				return true
			}
		}
		return false
	})
	victim.Kill()
	p.AwaitRun(id, "the member requeued", func(r runs.Run) bool { return r.Members[member-1].Requeued > 0 })
	p.Hub.Kill()
	<-time.After(300 * time.Millisecond) // an outage
	p.StartHub()
	r := p.AwaitEnd(id)
	checkVoted(t, p, r)
	if r.Vote == nil || len(r.Vote.Members) != 3 || r.Vote.Result.Single == nil {
		t.Fatalf("the vote is %+v", r.Vote)
	}
	checkResumed(t, p, id, member)
	checkMembersExported(t, p, id)
}

// ensemble is a small ensemble on the digits.
func ensemble(t *testing.T, more string) string {
	return strings.Replace(spec(t, "mode: ensemble\n"+more), "keep_every: 1\n", "", 1)
}

// checkVoted demands what every ensemble that ended well must show: it completed, every sample of every member counted once, and the
// log and the stored outputs give the same vote.
func checkVoted(t *testing.T, p *kit.Pool, r runs.Run) {
	t.Helper()
	if r.Phase != run.PhaseCompleted || r.Vote == nil {
		t.Fatalf("the run is %s: %s", r.Phase, r.Reason)
	}
	var seen, expected int64
	for _, m := range r.Members {
		if m.Status != run.MemberIn || m.Samples != m.Total {
			t.Errorf("member %d is %s with %d of %d samples", m.Number, m.Status, m.Samples, m.Total)
		}
		seen, expected = seen+m.Samples, expected+m.Total
	}
	if r.Ledger.Counted != seen || r.Ledger.Expected != expected || expected == 0 {
		t.Errorf("the ledger says %+v, the members %d of %d", r.Ledger, seen, expected)
	}
	var v replay.Report
	p.JSON(&v, "run", "replay", string(r.ID), "--verify")
	if v.Verdict != "bit-exact" || v.Vote == nil || v.Counted != v.Expected {
		t.Errorf("replay says %+v", v)
	}
}

// checkResumed reads from the log that another slot went on where the member's checkpoint was.
func checkResumed(t *testing.T, p *kit.Pool, id domain.RunID, member int) {
	t.Helper()
	at, from, slot := 0, -1, domain.SlotID("")
	for _, e := range p.Events() {
		if e.Agg != string(id) {
			continue
		}
		switch d := e.Data.(type) {
		case *run.MemberCheckpointed:
			if d.Member != member {
				continue
			}
			if d.From != at {
				t.Errorf("record %d goes on at chunk %d, the lineage is at %d", e.Seq, d.From, at)
			}
			if from >= 0 && slot == d.Slot {
				t.Errorf("record %d: the slot that was killed goes on", e.Seq)
			}
			at = d.Chunks
		case *run.MemberRequeued:
			if d.Member == member && from < 0 {
				from, slot = d.Kept, d.Slot
			}
		case *run.MemberTrained:
			if d.Member == member && (d.From != at || slot == d.Slot) {
				t.Errorf("record %d: member %d is trained by %s from chunk %d, the lineage is at %d", e.Seq, member, d.Slot, d.From, at)
			}
		}
	}
	if from <= 0 || at < from {
		t.Errorf("member %d was requeued at chunk %d and reached %d", member, from, at)
	}
}

// checkMembersExported takes the ensemble out: each member has weights of its own.
func checkMembersExported(t *testing.T, p *kit.Pool, id domain.RunID) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	p.Must("model", "export", string(id), dir)
	b, err := os.ReadFile(filepath.Join(dir, "ensemble.json"))
	if err != nil {
		t.Fatal(err)
	}
	var card struct {
		Vote    string
		Members []struct {
			Path   string
			SHA256 string
			Weight *float64
		}
	}
	if err := json.Unmarshal(b, &card); err != nil || card.Vote != "mean" || len(card.Members) != 3 {
		t.Fatalf("%+v, %v", card, err)
	}
	seen := map[string]bool{}
	for _, m := range card.Members {
		if _, err := os.Stat(filepath.Join(dir, m.Path, "model.safetensors")); err != nil || m.Weight == nil || seen[m.SHA256] {
			t.Errorf("%+v: %v", m, err)
		}
		seen[m.SHA256] = true
	}
}

// A machine that leaves gives its member back with a checkpoint, and loses nothing.
func TestEnsembleDrain(t *testing.T) {
	t.Parallel()
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	p.StartAgent("a", "--throttle", "0.02")
	leaving := p.StartAgent("b", "--throttle", "0.02")
	id := p.Submit(ensemble(t, "model: {kind: mlp, hidden: [32]}\nbatch: 32\nepochs: 4\nchunk: 64\nensemble: {members: 2, on_loss: drop}\n"))
	p.AwaitRun(id, "both at work", func(r runs.Run) bool {
		n := 0
		for _, m := range r.Members {
			if m.Status == run.MemberTraining {
				n++
			}
		}
		return n == 2
	})
	<-time.After(500 * time.Millisecond) // some chunks
	if code := leaving.Stop(30 * time.Second); code != 0 {
		t.Errorf("the agent ends with %d: %s", code, leaving.Output())
	}
	r := p.AwaitEnd(id)
	checkVoted(t, p, r)
	if r.Totals.Expired > 0 || len(r.Vote.Members) != 2 {
		t.Errorf("%d leases expired, %d members voted", r.Totals.Expired, len(r.Vote.Members))
	}
}
