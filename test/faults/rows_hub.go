package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
	"tensorturn/test/kit"
)

func hubRows() []row {
	return []row{
		{part: "hub", fault: "SIGKILL in the middle of a round, 4 times", expect: "goes on where its log ends; no lease lost, nothing told is lost, merges bit-exact",
			mutation: "the last block of the log loses its end at each kill", quick: true, run: hubKilled},
		{part: "hub", fault: "SIGKILL between a merge computed and its event", expect: "the merge is computed again to the same bytes",
			mutation: "the second merge is compared with other bytes", run: hubKilledInMerge},
		{part: "hub", fault: "SIGSTOP for 60 s of a lease of 120 s", expect: "machines compute on; its own silence is nobody's fault: no lease lost",
			mutation: "the machines are stopped as well, longer than their lease", run: hubFrozen},
		{part: "hub", fault: "killed for its memory while it takes bytes", expect: "exit 137 costs what SIGKILL costs",
			mutation: "the last block of the log loses its end", run: hubOutOfMemory, missing: needCgroup},
		{part: "hub", fault: "crash loop: killed 10 times while it starts", expect: "every start verifies; no file grows without end; the run goes on",
			mutation: "each crash leaves a file of 1 MiB in the store", run: hubCrashLoop},
	}
}

// bite cuts the end of the newest block of the log, as a hub that acknowledges what it has not stored would.
func (w *world) bite() {
	blocks := w.Blocks("EVENTS")
	newest := blocks[len(blocks)-1]
	info, err := os.Stat(newest)
	w.Must(err)
	w.Must(os.Truncate(newest, info.Size()-info.Size()/4))
	// The index would tell JetStream that more was there; a hub that never synced has none that does.
	_ = os.Remove(filepath.Join(filepath.Dir(newest), "index.db"))
	_ = os.Remove(filepath.Join(w.HubDir(), "log.head"))
}

func hubKilled(w *world) {
	w.up("a", "b")
	id := w.submit(20)
	for k := range 4 {
		r := w.halfway(id, 0.15*float64(k+1))
		if r.Phase.Ended() {
			break
		}
		w.after(w.random(200 * time.Millisecond))
		w.Hub.Kill()
		if w.mutant {
			w.bite()
		}
		w.StartHub("--min-free", "1048576")
	}
	r := w.ended(id)
	w.unharmed(r)
	w.see("%d rounds merged, %d events told and kept", r.Rounds.Merged, w.witness.count())
}

// hubKilledInMerge kills the hub right behind the closing of a round until a kill has met the merge: its result is stored, its
// event is not.
func hubKilledInMerge(w *world) {
	w.up("a", "b")
	id := w.submit(40, "model: {kind: mlp, hidden: [512]}")
	owed := 0
	for try := 1; try <= 16; try++ {
		merged := w.rounds(id)
		r := w.AwaitRun(id, "another merge", func(r runs.Run) bool { return r.Rounds.Open > 0 && r.Rounds.Merged > merged || r.Phase.Ended() })
		if r.Rounds.Merged >= r.Rounds.Planned-2 {
			break
		}
		w.AwaitRun(id, "a round to be full", func(r runs.Run) bool { return r.Rounds.Counted == r.Rounds.Chunks || r.Rounds.Merged > merged+1 })
		w.after(w.random(30 * time.Millisecond))
		w.Hub.Kill()
		left := w.Offline()
		w.StartHub("--min-free", "1048576")
		if !left.closedNotMerged(id) {
			continue
		}
		owed++
		round := left.merged(id) + 1
		w.AwaitRun(id, "the merge to be made again", func(r runs.Run) bool { return r.Rounds.Merged >= round })
		base := w.baseOf(id, round)
		if w.mutant {
			base = domain.Digest(strings.Repeat("0", 64)) // a merge that gives other bytes the second time
		}
		if left.blobs[base] {
			w.see("kill %d: the merged weights were stored, their event was not; merged again to the same digest %s", try, base.Short())
			w.ended(id)
			return
		}
	}
	w.Errorf("no kill has met a stored merge without its event whose second merge gave the same bytes (%d merges were owed)", owed)
}

// rounds is how many rounds the run has merged.
func (w *world) rounds(id domain.RunID) int {
	r, _ := w.Show(id)
	return r.Rounds.Merged
}

// baseOf is the digest of the weights that the round's merge has made.
func (w *world) baseOf(id domain.RunID, round int) domain.Digest {
	for _, e := range w.Events() {
		if d, ok := e.Data.(*run.RoundMerged); ok && e.Agg == string(id) && d.Round == round {
			return d.NextBase
		}
	}
	w.Fatalf("round %d was not merged", round)
	return ""
}

func hubFrozen(w *world) {
	w.up("a", "b")
	id := w.submit(40)
	w.halfway(id, 0.1)
	if w.mutant {
		for _, p := range w.agents {
			p := p
			go w.freeze(p, 2*lease)
		}
	}
	worked := time.Duration(0)
	for range 3 { // one that comes between two rounds finds nobody at work
		w.holding(id, "a")
		before := newest(w, "a", "b")
		w.freeze(w.Hub, half)
		worked = max(worked, newest(w, "a", "b").Sub(before))
	}
	if w.mutant {
		w.after(2 * lease)
	}
	r := w.ended(id)
	w.unharmed(r)
	if worked < 200*time.Millisecond {
		w.Errorf("no machine computed while the hub stood still")
	}
	w.see("stopped 3 times for %s; machines went on for %s; no lease lost", half, worked.Round(100*time.Millisecond))
}

// newest is when one of the machines last wrote a snapshot, which it does at the end of each chunk.
func newest(w *world, names ...string) time.Time {
	var at time.Time
	for _, n := range names {
		files, err := filepath.Glob(filepath.Join(w.AgentDir(n), "cache", "slots", "*", "*"))
		w.Must(err)
		for _, f := range files {
			if info, err := os.Stat(f); err == nil && info.ModTime().After(at) {
				at = info.ModTime()
			}
		}
	}
	return at
}

func needCgroup() string {
	dir, err := os.MkdirTemp("/sys/fs/cgroup/memory", "tensorturn-")
	if err != nil {
		return "needs a memory cgroup: " + err.Error()
	}
	os.Remove(dir)
	return ""
}

// hubOutOfMemory puts the hub into a cgroup that is too small for what is sent to it.
func hubOutOfMemory(w *world) {
	w.up("a", "b")
	id := w.submit(20)
	w.halfway(id, 0.2)
	dir, err := os.MkdirTemp("/sys/fs/cgroup/memory", "tensorturn-")
	w.Must(err)
	w.Bed.Cleanup(func() { os.Remove(dir) })
	w.Must(os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(w.Hub.PID())), 0o600))
	w.Must(os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), []byte("24M"), 0o600))
	go func() { // what the kernel takes away must be asked for first
		for i := range 64 {
			part := bytes.Repeat([]byte{byte(i)}, 8<<20)
			if w.PutAs("a", part) == 0 {
				return
			}
		}
	}()
	select {
	case <-w.Hub.Ended():
	case <-time.After(kit.Patience):
		w.Fatal("the kernel did not end the hub")
	}
	if w.mutant {
		w.bite()
	}
	w.StartHub("--min-free", "1048576")
	r := w.ended(id)
	w.unharmed(r)
	w.see("ended by the kernel at 24 MiB, %d events kept", w.witness.count())
}

func hubCrashLoop(w *world) {
	w.up("a", "b")
	id := w.submit(20)
	w.halfway(id, 0.2)
	w.Hub.Kill()
	before := w.treeSize()
	for i := range 10 {
		h := w.SpawnHub("--min-free", "1048576")
		w.after(20*time.Millisecond + w.random(250*time.Millisecond))
		h.Kill()
		if w.mutant {
			w.Must(os.WriteFile(filepath.Join(w.HubDir(), "store", fmt.Sprintf("core.%d", i)), make([]byte, 1<<20), 0o600))
		}
	}
	grown := w.treeSize() - before
	if grown > 4<<20 {
		w.Errorf("the hub's folder grew by %d bytes", grown)
	}
	began := time.Now()
	w.StartHub("--min-free", "1048576")
	took := time.Since(began)
	r := w.ended(id)
	if s := w.Run("log", "verify"); s.Code != 0 {
		w.Errorf("log verify: %s", strings.TrimSpace(s.Err))
	}
	w.see("up %.1f s after the tenth crash, folder grown by %d KiB, %d leases expired", took.Seconds(), grown>>10, r.Totals.Expired)
}

// treeSize is what the hub's folder holds, in bytes.
func (w *world) treeSize() int64 {
	var n int64
	w.Must(filepath.Walk(w.HubDir(), func(_ string, i os.FileInfo, err error) error {
		if err == nil && !i.IsDir() {
			n += i.Size()
		}
		return nil
	}))
	return n
}
