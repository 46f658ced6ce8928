package hub

import (
	"testing"
	"testing/synctest"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// A store that was cut at the end of a batch is a shorter log to itself; the position kept outside of it tells.
func TestCutLogIsNoticed(t *testing.T) {
	for _, c := range []struct {
		name  string
		known bool
		want  uint64 // first bad sequence, 0: nothing is noticed
	}{
		{"with the kept position", true, 3},
		{"without it, the guard is gone", false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.enrol("a", 1, 10)
			w.enrol("b", 1, 10)
			seq, digest := w.core.Head()
			if seq < 3 {
				t.Fatalf("the log has %d records, too few for a cut", seq)
			}
			w.log.Cut(2) // everything behind the second record is gone
			cfg := Config{Timing: domain.TimingOf(testLease), Process: "again"}
			if c.known {
				cfg.Known = Position{Seq: seq, Digest: digest}
			}
			core := New(cfg, w.log, w.reg)
			if err := core.Open(t.Context(), w.now); err != nil {
				t.Fatal(err)
			}
			bad, _ := event.FirstBad(core.ReadOnly())
			if bad != c.want {
				t.Fatalf("read-only: %v", core.ReadOnly())
			}
		})
	}
}

// The position is kept while the log grows, and at the end.
func TestPositionIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept []Position
		r := newRig(t, func(c *ServiceConfig) { c.KeepHead = func(p Position) error { kept = append(kept, p); return nil } })
		r.start()
		r.found("a")
		<-time.After(keepEvery + time.Millisecond) // virtual time of the bubble
		synctest.Wait()
		if len(kept) != 1 {
			t.Fatalf("kept %d times after one interval", len(kept))
		}
		<-time.After(5 * keepEvery)
		synctest.Wait()
		n := len(kept)
		r.found("b")
		r.s.Stop()
		if last := kept[len(kept)-1]; len(kept) <= n || last.Seq <= kept[0].Seq || last.Digest == "" {
			t.Fatalf("kept %v, of which %d before the last change", kept, n)
		}
	})
}
