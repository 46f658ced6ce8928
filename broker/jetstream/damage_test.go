package jetstream_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tensorturn/broker"
	"tensorturn/broker/jetstream"
	"tensorturn/domain"
	"tensorturn/domain/event"
)

type lit struct {
	Watts int    `msgpack:"watts"`
	Note  string `msgpack:"note"`
}

func (*lit) EventName() string { return "lamp.lit" }
func (*lit) Line() string      { return "lit" }

func registry() *event.Registry {
	r := event.NewRegistry()
	r.Add("lamp.lit", 1, func() event.Data { return &lit{} })
	return r
}

// commit writes n events in groups of size.
func commit(t testing.TB, l broker.Log, n, size int) {
	t.Helper()
	c := broker.NewCommitter(l, registry())
	if err := c.Open(t.Context(), func(event.Envelope) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < n; i += size {
		g := broker.Group{Command: domain.CommandID(fmt.Sprintf("c-%d", i)), Actor: "hub"}
		for k := range size {
			g.Events = append(g.Events, event.Event{Kind: event.KindRun, ID: "lamp-1", Data: &lit{Watts: i + k, Note: strings.Repeat("n", 60)}})
		}
		if _, err := c.Commit(t.Context(), time.Unix(int64(i), 0), []broker.Group{g}); err != nil {
			t.Fatal(err)
		}
	}
}

// blocks lists the files that hold the log's records.
func blocks(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", jetstream.EventStream, "msgs", "*.blk"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no block files: %v", err)
	}
	return files
}

// TestFlippedByteOnTheDisk flips one byte of a stopped store, at many places. Whatever JetStream makes of it, a read of
// the log must end with an integrity error that names a sequence, and everything before it must be what was written.
func TestFlippedByteOnTheDisk(t *testing.T) {
	const events = 200
	master := t.TempDir()
	s := startServer(t, master)
	commit(t, openStore(t, s).Log, events, 20)
	stopServer(s)
	size := len(mustRead(t, blocks(t, master)[0]))
	for i, part := range []int{0, 7, 31, 50, 77, 93, 99, 0, 50, 99} {
		noIndex := i > 6 // then JetStream scans the blocks, and may cut them where they are bad
		t.Run(fmt.Sprintf("at %d percent, without index %v", part, noIndex), func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(master)); err != nil {
				t.Fatal(err)
			}
			file := blocks(t, dir)[0]
			b := mustRead(t, file)
			at := size*part/100 + 40
			b[at] ^= 0x10
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if noIndex {
				if err := os.Remove(filepath.Join(filepath.Dir(file), "index.db")); err != nil {
					t.Fatal(err)
				}
			}
			l := openStore(t, startServer(t, dir)).Log
			seen := uint64(0)
			_, _, err := broker.Verify(t.Context(), l, expectAll(t, master, events), func(e event.Envelope) error {
				seen++
				if d := e.Data.(*lit); e.Seq != seen || d.Watts != int(seen-1) {
					t.Errorf("record %d is %+v", e.Seq, d)
				}
				return nil
			})
			bad, ok := event.FirstBad(err)
			if domain.KindOf(err) != domain.KindIntegrity || !ok || bad != seen+1 {
				t.Fatalf("byte %d of %d: %d good records, then %v", at, size, seen, err)
			}
			t.Logf("byte %d: first bad sequence %d: %v", at, bad, err)
		})
	}
}

// TestCutWithinABatch loses the last bytes of the last block, as a power cut does: what is left of the last batch is known by its
// sequences, and a repair is given none of it.
func TestCutWithinABatch(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, dir)
	l := openStore(t, s).Log
	commit(t, l, 60, 20)
	if c := l.Cut(); c != (jetstream.Cut{}) {
		t.Errorf("a whole log is cut at %v", c)
	}
	stopServer(s)
	file := blocks(t, dir)[0]
	if err := os.Truncate(file, int64(len(mustRead(t, file))-10)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(filepath.Dir(file), "index.db")); err != nil {
		t.Fatal(err)
	}
	l = openStore(t, startServer(t, dir)).Log
	if c := l.Cut(); c != (jetstream.Cut{First: 41, Last: 59}) {
		t.Errorf("the log ends within the batch %v, want 41 to 59", c)
	}
	for _, seq := range []uint64{1, 40} {
		if r, err := l.Record(t.Context(), seq); err != nil || r.Seq != seq {
			t.Errorf("record %d is %d, %v", seq, r.Seq, err)
		}
	}
	for _, seq := range []uint64{41, 59, 60} {
		if r, err := l.Record(t.Context(), seq); domain.KindOf(err) != domain.KindNotFound {
			t.Errorf("record %d of the cut batch is given: %d, %v", seq, r.Seq, err)
		}
	}
	_, _, err := broker.Verify(t.Context(), l, event.NewVerifier(registry()), func(event.Envelope) error { return nil })
	if bad, ok := event.FirstBad(err); !ok || bad != 60 {
		t.Errorf("the log reads as %v, want a break at 60", err)
	}
}

// expectAll is a verifier that knows the digest of the last record, as a signed head would tell it.
func expectAll(t *testing.T, master string, events uint64) *event.Verifier {
	t.Helper()
	s := startServer(t, master)
	defer stopServer(s)
	v := event.NewVerifier(registry())
	_, head, err := broker.Verify(t.Context(), openStore(t, s).Log, event.NewVerifier(registry()), func(event.Envelope) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	v.Expect(events, head)
	return v
}

func mustRead(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// BenchmarkReplay measures what a hub start does: read, verify the chain, decode, apply.
func BenchmarkReplay(b *testing.B) {
	const events = 50_000
	l := newStore(b).Log
	commit(b, l, events, 1000)
	before := cpu(b)
	for b.Loop() {
		n := 0
		if err := broker.NewCommitter(l, registry()).Open(b.Context(), func(event.Envelope) error { n++; return nil }); err != nil || n != events {
			b.Fatalf("%d events, %v", n, err)
		}
	}
	b.ReportMetric(float64(b.N)*events/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N)/events, "cpu-µs/event")
}
