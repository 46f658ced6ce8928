package memory_test

import (
	"testing"
	"time"

	"tensorturn/broker"
	"tensorturn/broker/brokertest"
	"tensorturn/broker/memory"
	"tensorturn/domain"
	"tensorturn/domain/event"
)

func TestLogSuite(t *testing.T) {
	brokertest.Log(t, func(*testing.T) broker.Log { return memory.NewLog(nil) })
}

func TestBlobsSuite(t *testing.T) {
	brokertest.Blobs(t, func(*testing.T) broker.Blobs { return memory.NewBlobs(time.Now, nil) })
}

func TestFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  memory.Fault
		stored uint64
	}{
		"fail before":   {memory.FailBefore, 0},
		"fail after":    {memory.FailAfter, 1},
		"fail conflict": {memory.FailConflict, 1},
		"full":          {memory.Full, 0},
		"read-only":     {memory.ReadOnly, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := memory.NewLog(func(op memory.Op) memory.Fault {
				if op == memory.OpAppend {
					return tc.fault
				}
				return memory.None
			})
			if _, err := l.Append(t.Context(), 0, brokertest.Records("a", 1)); err == nil {
				t.Fatal("no error")
			}
			if last, err := l.Last(t.Context()); err != nil || last != tc.stored {
				t.Fatalf("last %d, %v; want %d", last, err, tc.stored)
			}
			data := []byte("x")
			b := memory.NewBlobs(time.Now, func(op memory.Op) memory.Fault {
				if op == memory.OpPut {
					return tc.fault
				}
				return memory.None
			})
			if err := b.Put(t.Context(), brokertest.Sum(data), data); domain.KindOf(err) != domain.KindUnavailable {
				t.Fatalf("put: %v", err)
			}
			if has, err := b.Has(t.Context(), []domain.Digest{brokertest.Sum(data)}); err != nil || has[0] != (tc.stored == 1) {
				t.Fatalf("has %v, %v", has, err)
			}
		})
	}
}

func TestDamage(t *testing.T) {
	l := memory.NewLog(nil)
	if _, err := l.Append(t.Context(), 0, brokertest.Records("a", 5)); err != nil {
		t.Fatal(err)
	}
	l.Corrupt(2, func(b []byte) []byte { b[0] ^= 1; return b })
	if recs := brokertest.All(t, l, 1); recs[1].Data[0] == brokertest.Records("a", 5)[1].Data[0] {
		t.Error("record 2 is not corrupt")
	}
	l.Cut(4)
	if recs := brokertest.All(t, l, 1); len(recs) != 4 {
		t.Errorf("%d records after a cut at 4", len(recs))
	}
	l.Lose(3)
	n := uint64(0)
	for r, err := range l.Read(t.Context(), 1) {
		if err != nil {
			if bad, ok := event.FirstBad(err); !ok || bad != 3 || n != 2 {
				t.Fatalf("after %d: %v", n, err)
			}
			break
		}
		n = r.Seq
	}
	b := memory.NewBlobs(time.Now, nil)
	d := brokertest.Sum([]byte("x"))
	if err := b.Put(t.Context(), d, []byte("x")); err != nil {
		t.Fatal(err)
	}
	b.Corrupt(d, func([]byte) []byte { return []byte("y") })
	if _, err := b.Get(t.Context(), d); domain.KindOf(err) != domain.KindIntegrity {
		t.Fatalf("get of a damaged blob: %v", err)
	}
}
