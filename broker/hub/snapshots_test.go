package hub

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker/memory"
	"tensorturn/broker/snapshot"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// stamp signs for everybody who knows its word.
type stamp string

func (s stamp) Sign(b []byte) []byte { return append(make([]byte, 32), digestBytes(string(s), b)...) }
func (s stamp) Signed(b, sig []byte) bool {
	return bytes.Equal(sig, s.Sign(b))
}

func digestBytes(word string, b []byte) []byte {
	return []byte(event.Digest(append([]byte(word), b...)))[:32]
}

// frozenPool is a hub that has run for a while and was stopped: its log and its folder of snapshots.
type frozenPool struct {
	*rig
	dir  string
	last uint64 // end of the log
}

func newFrozenPool(t *testing.T) *frozenPool {
	t.Helper()
	p := &frozenPool{dir: t.TempDir()}
	p.rig = newRig(t, p.with(t, "ours", nil))
	p.start()
	p.found("a", "b", "c")
	p.submit("r-1")
	p.submit("r-2")
	for i := range 3 * headEvery / 2 { // so that there is a head to sign
		p.must(p.do(event.KindRun, "r-1", pauseOrResume(i)))
	}
	p.s.Stop()
	p.last, _ = p.log.Last(t.Context())
	if p.resumed != 0 {
		t.Fatalf("the first start resumed at %d", p.resumed)
	}
	return p
}

// with configures snapshots in the pool's folder, signed by a hub's word; what is logged goes to out.
func (p *frozenPool) with(t *testing.T, word string, out *words) func(*ServiceConfig) {
	store, err := snapshot.Open(p.dir, stamp(word))
	if err != nil {
		t.Fatal(err)
	}
	return func(c *ServiceConfig) {
		c.Snapshots, c.Heads, c.Version = store, plainHeads{}, "v1"
		if out != nil {
			c.Logger = zerolog.New(out)
		}
	}
}

// words takes what is logged, by whomever.
type words struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (w *words) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Write(b)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

// again is a second Service on the pool's log, and what it logged until it was up.
func (p *frozenPool) again(t *testing.T, word string, change func(*ServiceConfig)) (*rig, string) {
	t.Helper()
	var out words
	r := &rig{t: t, link: &fakeLink{}, log: p.log, beats: &memory.Heartbeats{}, blobs: p.blobs}
	r.build(func(c *ServiceConfig) {
		p.with(t, word, &out)(c)
		if change != nil {
			change(c)
		}
	})
	r.start()
	said := make(chan string, 1)
	r.must(r.s.Read(t.Context(), func(*Core) { said <- out.String() }))
	return r, <-said
}

// same holds a Service's fold against the whole log.
func (p *frozenPool) same(t *testing.T, s *Service) {
	t.Helper()
	whole := New(Config{Timing: domain.TimingOf(testLease), Process: "whole"}, p.log, registry())
	p.must(whole.Open(t.Context(), time.Now()))
	p.must(s.Read(t.Context(), func(c *Core) {
		if d := foldDiff(whole.fold, c.fold); d != "" {
			t.Errorf("not the fold of the log (-log +hub):\n%s", d)
		}
	}))
}

func TestStartFromASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFrozenPool(t)
		r, said := p.again(t, "ours", nil)
		if r.resumed != p.last || len(r.events) != 0 || strings.Contains(said, "ignored") {
			t.Fatalf("resumed at %d of %d and was given %d events; said %s", r.resumed, p.last, len(r.events), said)
		}
		if r.cmds != p.cmds {
			t.Errorf("the follower's state: %d, not %d", r.cmds, p.cmds)
		}
		p.same(t, r.s)
		if seq, _, err := r.s.heads.heads.Open(r.s.heads.newest); err != nil || seq != headEvery {
			t.Errorf("newest head: %d %v", seq, err)
		}
		lie := plainHeads{}.Sign(headEvery, digest("another")) // an agent's witness of a record below the snapshot
		if err := r.s.heads.check(lie); domain.KindOf(err) != domain.KindIntegrity {
			t.Errorf("a head that is not the log's: %v", err)
		}
		if reply := r.request("Ab", newFakeAgent("b", 1, 1).request()); reply == nil || reply.Error != nil {
			t.Errorf("a machine enrolled before the snapshot: %+v", reply)
		}
		synctest.Wait()
		time.Sleep(time.Minute) // of the bubble: the log below is read in bursts
		if v := r.s.Verified(); v < p.last {
			t.Errorf("verified up to %d of %d", v, p.last)
		}
		r.submit("r-3") // goes on where it stood
		r.s.Stop()
		p.last, _ = p.log.Last(t.Context())
		third, _ := p.again(t, "ours", nil)
		if third.resumed != p.last {
			t.Errorf("the third start resumed at %d of %d", third.resumed, p.last)
		}
		p.same(t, third.s)
		third.s.Stop()
	})
}

// TestTailBehindASnapshot: the process died before it could write its last one.
func TestTailBehindASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFrozenPool(t)
		r, _ := p.again(t, "ours", func(c *ServiceConfig) { c.Snapshots = nil })
		r.cmds = p.cmds
		r.submit("r-3")
		r.s.Stop()
		again, _ := p.again(t, "ours", nil)
		defer again.s.Stop()
		if again.resumed != p.last || len(again.events) == 0 || again.events[0].Seq != p.last+1 {
			t.Errorf("resumed at %d, was given %d events", again.resumed, len(again.events))
		}
		p.same(t, again.s)
	})
}

// newest is the path of the pool's newest snapshot.
func (p *frozenPool) newest() string {
	return filepath.Join(p.dir, fmt.Sprintf("%020d.snapshot", p.last))
}

// TestSnapshotsThatAreNotUsed: each is said in the hub's log, the whole log is read, and the hub works.
func TestSnapshotsThatAreNotUsed(t *testing.T) {
	for name, c := range map[string]struct {
		word  string
		spoil func(t *testing.T, p *frozenPool)
		with  func(*ServiceConfig)
		says  string
	}{
		"damaged": {"ours", func(t *testing.T, p *frozenPool) {
			b, err := os.ReadFile(p.newest())
			p.must(err)
			b[len(b)-1] ^= 1
			p.must(os.WriteFile(p.newest(), b, 0o600))
		}, nil, "is damaged"},
		"of another hub":     {"theirs", nil, nil, "did not sign"},
		"of another program": {"ours", nil, func(c *ServiceConfig) { c.Version = "v2" }, "another version"},
		"of the future": {"ours", func(t *testing.T, p *frozenPool) { p.rewrite(t, func(n *snapshot.Snapshot) { n.Seq += 7 }) }, nil,
			"does not hold the record"},
		"of another log": {"ours", func(t *testing.T, p *frozenPool) {
			p.rewrite(t, func(n *snapshot.Snapshot) { n.Digest = digest("another") })
		}, nil, "does not hold the record"},
		"without a part": {"ours", func(t *testing.T, p *frozenPool) {
			p.rewrite(t, func(n *snapshot.Snapshot) { n.Parts = n.Parts[:2] })
		}, nil, "other parts"},
		"with parts in disorder": {"ours", func(t *testing.T, p *frozenPool) {
			p.rewrite(t, func(n *snapshot.Snapshot) { n.Parts[1], n.Parts[2] = n.Parts[2], n.Parts[1] })
		}, nil, "other parts"},
		"with state that is none": {"ours", func(t *testing.T, p *frozenPool) {
			p.rewrite(t, func(n *snapshot.Snapshot) { n.Parts[0].Data = n.Parts[0].Data[:10] })
		}, nil, "thaw hub"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newFrozenPool(t)
				if c.spoil != nil {
					c.spoil(t, p)
				}
				r, said := p.again(t, c.word, c.with)
				defer r.s.Stop()
				if r.resumed != 0 || !strings.Contains(said, "snapshot ignored") || !strings.Contains(said, c.says) {
					t.Errorf("resumed at %d, said %s", r.resumed, said)
				}
				if len(r.events) != int(p.last) {
					t.Errorf("was given %d of %d events", len(r.events), p.last)
				}
				p.same(t, r.s)
				r.cmds = p.cmds
				r.submit("r-9")
			})
		})
	}
}

// rewrite changes the newest snapshot and signs it again: what only the hub itself could do, by a defect.
func (p *frozenPool) rewrite(t *testing.T, change func(*snapshot.Snapshot)) {
	t.Helper()
	store, err := snapshot.Open(p.dir, stamp("ours"))
	p.must(err)
	for n, err := range store.Read(t.Context(), p.s.snaps.schema) {
		p.must(err)
		p.must(os.Remove(p.newest()))
		change(&n)
		p.must(store.Write(n))
		return
	}
	t.Fatal("there is no snapshot")
}

// TestDamageBelowTheSnapshotIsFound by the verification that goes on behind: the hub serves, then turns read-only.
func TestDamageBelowTheSnapshotIsFound(t *testing.T) {
	for name, spoil := range map[string]func(*memory.Log){
		"a flipped bit": func(l *memory.Log) { l.Corrupt(5, func(b []byte) []byte { b[len(b)/2] ^= 1; return b }) },
		"a lost record": func(l *memory.Log) { l.Lose(5) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newFrozenPool(t)
				spoil(p.log)
				r, _ := p.again(t, "ours", nil)
				defer r.s.Stop()
				if r.resumed != p.last {
					t.Fatalf("resumed at %d", r.resumed)
				}
				time.Sleep(time.Minute) // of the bubble
				if err := r.s.ReadOnly(); domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), "first bad sequence 5:") {
					t.Errorf("read-only: %v", err)
				}
				if v := r.s.Verified(); v != 4 {
					t.Errorf("verified up to %d", v)
				}
			})
		})
	}
}

// TestRebuildFromASnapshot: after a failed append the fold is made again from the newest snapshot and the tail.
func TestRebuildFromASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFrozenPool(t)
		r, _ := p.again(t, "ours", nil)
		defer r.s.Stop()
		fails := 1
		p.log.SetFault(func(op memory.Op) memory.Fault {
			if op == memory.OpAppend && fails > 0 {
				fails--
				return memory.Full
			}
			return memory.None
		})
		if err := r.do(event.KindRun, "r-1", pauseOrResume(0)); domain.KindOf(err) != domain.KindUnavailable {
			t.Fatalf("a full disk: %v", err)
		}
		time.Sleep(time.Minute) // of the bubble: rebuilds are paced
		r.submit("r-4")
		p.same(t, r.s)
		var events []event.Envelope
		p.must(r.s.Read(t.Context(), func(*Core) { events = r.events }))
		if len(events) == 0 || events[0].Seq != p.last+1 {
			t.Errorf("listeners were given %d events again", len(events))
		}
	})
}

// TestListenersThatNeedTheWholeLog get it.
func TestListenersThatNeedTheWholeLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFrozenPool(t)
		var seen int
		var out words
		r := &rig{t: t, link: &fakeLink{}, log: p.log, beats: &memory.Heartbeats{}, blobs: p.blobs}
		r.build(p.with(t, "ours", &out))
		r.s.OnCommitted(func(es []event.Envelope) { seen += len(es) })
		r.start()
		r.s.Stop()
		if seen != int(p.last) || !strings.Contains(out.String(), "needs the whole log") {
			t.Errorf("seen %d of %d; said %s", seen, p.last, out.String())
		}
	})
}

// TestSnapshotsWhileRunning: one every snapshotEvery events, and freezing leaves the loop most of its time.
func TestSnapshotsWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFrozenPool(t)
		fillTo(t, p.log, 2*snapshotEvery)
		r, _ := p.again(t, "ours", nil)
		r.cmds = p.cmds
		r.submit("r-5") // a step: the tail is long enough for a snapshot
		p.must(r.s.Read(t.Context(), func(*Core) {}))
		synctest.Wait()
		files, err := filepath.Glob(filepath.Join(p.dir, "*.snapshot"))
		p.must(err)
		if len(files) != 2 || !strings.Contains(files[1], fmt.Sprintf("%020d", r.s.at.Load().Seq)) {
			t.Errorf("snapshots: %v, log at %d", files, r.s.at.Load().Seq)
		}
		r.s.Stop()
	})
}

// fillTo makes the log at least n records long: r-2 is paused and resumed.
func fillTo(t *testing.T, log *memory.Log, n int) {
	t.Helper()
	core := New(Config{Timing: domain.TimingOf(testLease), Process: "filler"}, log, registry())
	if err := core.Open(context.Background(), time.Now()); err != nil {
		t.Fatal(err)
	}
	for i := 0; int(core.head()) < n; i += MaxInputs {
		var in []Input
		for k := range MaxInputs {
			in = append(in, Do{Command: domain.CommandID(fmt.Sprintf("fill-%d", i+k)), Actor: "operator",
				Targets: []Target{{Kind: event.KindRun, ID: "r-2", Command: pauseOrResume(k)}}})
		}
		core.Step(context.Background(), time.Now(), in)
	}
}

// BenchmarkFreeze is what a snapshot takes of the loop's time, for a run of 20,000 chunks under way.
func BenchmarkFreeze(b *testing.B) {
	w, _ := fleet(b, 10)
	b.ReportAllocs()
	for b.Loop() {
		_, frozen, ok, err := w.core.Freeze()
		if !ok || err != nil {
			b.Fatal(ok, err)
		}
		b.SetBytes(int64(len(frozen)))
	}
}

// pauseOrResume is a command that always changes something.
func pauseOrResume(i int) run.Command {
	if i%2 == 0 {
		return run.Pause{Reason: "again"}
	}
	return run.Resume{}
}
