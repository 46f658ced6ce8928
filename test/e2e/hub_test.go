package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tensorturn/domain/run"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
)

// A hub that is stopped in good order and started again is a non-event: no lease is lost, nothing is trained twice.
func TestHubRestartIsANonEvent(t *testing.T) {
	t.Parallel()
	p, _ := pool(t, "a", "b")
	id := p.Submit(epochs(t, 8))
	awaitHolding(t, p, id, "a")
	if code := p.Hub.Stop(kit.Patience); code != 0 {
		t.Errorf("the hub ended with exit code %d", code)
	}
	if !strings.Contains(p.Hub.Output(), "stopped after") {
		t.Error("the hub does not say that it stopped")
	}
	p.StartHub()
	r := p.AwaitEnd(id)
	checkRun(t, p, r)
	// Near the end of a round a slot without work trains copies of what a slower one has not begun: that is the scheduler's
	// daily work, and one of each two is cut. What silence brings about has no gain to name, and must not be there.
	n := r.Totals
	if n.Expired+n.Requeued+n.Refused+n.Revoked != 0 || n.Cut > n.Copied {
		t.Errorf("the restart left traces: %+v", n)
	}
	for _, e := range p.Events() {
		if d, ok := e.Data.(*run.ChunksCopied); ok && e.Agg == string(id) && d.Gain == 0 {
			t.Errorf("copies because somebody was thought lost: %s", d.Line())
		}
	}
	trained := 0
	for _, s := range r.Slots {
		trained += s.Chunks
	}
	if trained < 8*23 || trained > 8*23+n.Copied {
		t.Errorf("%d chunks were trained for a run of %d", trained, 8*23)
	}
}

// A second hub on the directory refuses, says why, and leaves the first alone.
func TestSecondHubRefuses(t *testing.T) {
	t.Parallel()
	p, _ := pool(t, "a")
	s := p.Run("hub", "start", "--dir", p.HubDir(), "--listen", "127.0.0.1:0")
	if s.Code != 6 || !strings.Contains(s.Err, "another hub is running on") || !strings.Contains(s.Err, "hint: stop it first") {
		t.Errorf("exit code %d, %q", s.Code, s.Err)
	}
	taken := p.Run("hub", "start", "--dir", t.TempDir(), "--listen", strings.TrimPrefix(p.URL, "https://"))
	if taken.Code != 6 || !strings.Contains(taken.Err, "cannot be taken") {
		t.Errorf("on a taken port: exit code %d, %q", taken.Code, taken.Err)
	}
	checkRun(t, p, p.AwaitEnd(p.Submit(epochs(t, 2))))
}

// A store that is full (here: its own limit) ends nothing: first no new runs are taken while the one under way goes on, then
// no bytes; the hub says so, agents keep what they trained, and with more room the run goes on where it was.
func TestStoreFull(t *testing.T) {
	t.Parallel()
	p := kit.NewPool(t, binary, lease)
	p.StartHub("--max-store", itoa(1<<30))
	p.StartAgent("a", "--throttle", slow)
	p.StartAgent("b", "--throttle", slow)
	id := p.Submit(spec(t, "model: {kind: mlp, hidden: [256]}\nbatch: 32\nepochs: 16\nchunk: 64\nround: {chunks: 46}\ncodec: fp32\n"))
	p.AwaitRun(id, "its first merge", func(r runs.Run) bool { return r.Rounds.Merged > 0 })
	fillStore(t, p)
	var full runs.Run
	p.AwaitRun(id, "the run to notice", func(r runs.Run) bool {
		full = r
		return strings.Contains(p.Hub.Output(), "the hub's store is full")
	})
	if full.Phase.Ended() {
		t.Fatalf("the run ended: %s %s", full.Phase, full.Reason)
	}
	if s := p.Must("run", "show", string(id)); !strings.Contains(s, "the hub's store is full") {
		t.Errorf("run show says:\n%s", s)
	}
	s := p.Run("run", "submit", smallCSV(t))
	if s.Code != 5 || !strings.Contains(s.Err, "the store is full") || !strings.Contains(s.Err, "hint: make room on the disk or raise the hub's store limit") {
		t.Errorf("a submission to a full store: exit code %d, %q", s.Code, s.Err)
	}
	p.Hub.Stop(kit.Patience)
	p.StartHub("--max-store", itoa(2<<30))
	if r, ok := p.Show(id); !ok || r.Ledger.Counted < full.Ledger.Counted {
		t.Errorf("after the restart %d samples are counted, before %d", r.Ledger.Counted, full.Ledger.Counted)
	}
	r := p.AwaitEnd(id)
	checkRun(t, p, r)
	if r.Totals.Expired > 0 {
		t.Errorf("%d leases expired because the store was full", r.Totals.Expired)
	}
}

// fillStore puts ballast into the store until it takes no more.
func fillStore(t *testing.T, p *kit.Pool) {
	t.Helper()
	const limit = 1024
	began, ballast := time.Now(), make([]byte, 8<<20)
	puts := 0
	for size := len(ballast); size >= 1<<10; {
		copy(ballast, itoa(puts)+" ") // another object each time
		switch status := p.PutAs("a", ballast[:size]); status {
		case http.StatusOK, http.StatusCreated, http.StatusNoContent:
			if puts++; puts > limit {
				t.Fatal("the store has no end")
			}
		default:
			size /= 2
		}
	}
	t.Logf("%d objects fill the store after %s", puts, time.Since(began))
}

// smallCSV writes a spec with a small data set of its own and gives its path.
func smallCSV(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	rows := "x,y,label\n" + strings.Repeat("1,2,a\n3,4,b\n", 10_000)
	write(t, filepath.Join(dir, "data.csv"), rows)
	write(t, filepath.Join(dir, "spec.yaml"), "name: other\ndata: {path: data.csv}\n")
	return filepath.Join(dir, "spec.yaml")
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A power cut ends everything at once, in the middle of the work. Started again in any order, the pool goes on where its
// log ends; agents with more than one slot too.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	p.Join("a", "--slots", "2")
	p.Join("b")
	flags := []string{"--throttle", slow}
	a, b := p.SpawnAgent("a", append(flags, "--slots", "2")...), p.SpawnAgent("b", flags...)
	id := p.Submit(epochs(t, 12))
	p.AwaitMachine("a", "online")
	p.AwaitMachine("b", "online")
	for _, agentsFirst := range []bool{true, false} {
		awaitHolding(t, p, id, "a")
		a.Kill()
		b.Kill()
		p.Hub.Kill()
		if !agentsFirst {
			p.StartHub()
		}
		a, b = p.SpawnAgent("a", append(flags, "--slots", "2")...), p.SpawnAgent("b", flags...)
		if agentsFirst {
			p.StartHub()
		}
	}
	r := p.AwaitEnd(id)
	checkRun(t, p, r)
	if len(r.Slots) != 3 {
		t.Errorf("%d slots worked, want 3", len(r.Slots))
	}
}
