package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"tensorturn/projections/runs"
	"tensorturn/test/kit"
)

const (
	chunksPerEpoch = 12
	chunksPerKill  = 4 * chunksPerEpoch     // work between two kills: about two seconds of two throttled machines
	chunkTime      = 150 * time.Millisecond // of a throttled machine, with room
)

// The hub is killed with SIGKILL at random moments of one run, now and then while it is still starting, and started
// again. The run completes, every sample counts once, the agents went on computing meanwhile, and the model is the one
// that the log gives.
func TestHubKilledAtRandomMoments(t *testing.T) {
	t.Parallel()
	p := kit.NewPool(t, binary, 2*lease)
	p.StartHub()
	p.StartAgent("a", "--throttle", "0.008")
	p.StartAgent("b", "--throttle", "0.008")
	chunks := (*kills + 2) * chunksPerKill
	id := p.Submit(spec(t, fmt.Sprintf("model: {kind: mlp, hidden: [32]}\nbatch: 32\nepochs: %d\nchunk: 128\nround: {chunks: 48}\n", chunks/chunksPerEpoch)))
	rng := rand.New(rand.NewPCG(*chaosSeed, 4))
	t.Logf("seed %d, %d kills, %d chunks", *chaosSeed, *kills, chunks)

	worked := 0
	for _, at := range moments(rng, *kills, chunks-chunksPerKill) {
		p.AwaitRun(id, fmt.Sprintf("chunk %d", at), func(r runs.Run) bool { return trainedChunks(r) >= at })
		<-time.After(time.Duration(rng.IntN(300)) * time.Millisecond) // a moment between two facts
		down := time.Now()
		p.Hub.Kill()
		for rng.IntN(4) == 0 { // and while it starts
			h := p.SpawnHub()
			<-time.After(time.Duration(rng.IntN(250)) * time.Millisecond)
			h.Kill()
		}
		<-time.After(time.Duration(300+rng.IntN(700)) * time.Millisecond)
		// The chunk under way when the hub was killed ends within chunkTime and does not count.
		if a, b := newestSnapshot(t, p, "a"), newestSnapshot(t, p, "b"); max(a.Sub(down), b.Sub(down)) > chunkTime {
			worked++
		}
		p.StartHub()
	}
	r := p.AwaitEnd(id)
	checkRun(t, p, r)
	if r.Totals.Expired > 0 {
		t.Errorf("%d leases expired although both machines were there all the time", r.Totals.Expired)
	}
	// Not in every outage: one that comes right behind another, or between two rounds, finds the agents without work.
	if worked < max(1, *kills/4) {
		t.Errorf("the agents went on computing in %d of %d outages", worked, *kills)
	}
	t.Logf("the agents went on computing in %d of %d outages", worked, *kills)
}

// moments draws n sorted chunk counts below limit.
func moments(rng *rand.Rand, n, limit int) []int {
	at := make([]int, n)
	for i := range at {
		at[i] = rng.IntN(limit)
	}
	slices.Sort(at)
	return at
}

func trainedChunks(r runs.Run) int {
	n := 0
	for _, s := range r.Slots {
		n += s.Chunks
	}
	return n
}

// newestSnapshot is when a slot of the machine last finished a chunk: it then writes a snapshot of its weights.
func newestSnapshot(t *testing.T, p *kit.Pool, name string) time.Time {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(p.AgentDir(name), "cache", "slots", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var newest time.Time
	for _, f := range files {
		if info, err := os.Stat(f); err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return newest
}
