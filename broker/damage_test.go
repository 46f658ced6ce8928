package broker_test

import (
	"context"
	"testing"

	"tensorturn/broker"
	"tensorturn/broker/brokertest"
	"tensorturn/broker/memory"
	"tensorturn/domain"
	"tensorturn/domain/event"
)

func TestRolledBackLogIsNoticed(t *testing.T) {
	l := memory.NewLog(nil)
	c, _ := open(t, l)
	if _, err := c.Commit(t.Context(), noon, []broker.Group{group("a", 5)}); err != nil {
		t.Fatal(err)
	}
	l.Cut(3)
	_, err := c.Commit(t.Context(), noon, []broker.Group{group("b", 1)})
	if bad, ok := event.FirstBad(err); !ok || bad != 4 || domain.KindOf(err) != domain.KindIntegrity {
		t.Fatalf("got %v", err)
	}
}

func TestDamageIsFoundAtOpen(t *testing.T) {
	for name, tc := range map[string]struct {
		damage func(*memory.Log)
		bad    uint64
	}{
		"flipped byte":   {func(l *memory.Log) { l.Corrupt(3, func(b []byte) []byte { b[9] ^= 4; return b }) }, 3},
		"lost record":    {func(l *memory.Log) { l.Lose(4) }, 4},
		"foreign record": {func(l *memory.Log) { l.Intrude(brokertest.Records("x", 1)[0]) }, 6},
	} {
		t.Run(name, func(t *testing.T) {
			l := memory.NewLog(nil)
			c, _ := open(t, l)
			if _, err := c.Commit(t.Context(), noon, []broker.Group{group("a", 5)}); err != nil {
				t.Fatal(err)
			}
			tc.damage(l)
			var seen uint64
			err := c.Open(t.Context(), func(e event.Envelope) error { seen = e.Seq; return nil })
			if bad, ok := event.FirstBad(err); !ok || bad != tc.bad || seen != tc.bad-1 {
				t.Fatalf("first bad %d, seen %d: %v", bad, seen, err)
			}
			if seq, _ := c.Head(); seq != tc.bad-1 {
				t.Errorf("head %d", seq)
			}
		})
	}
}

// TestCutLogIsFoundWithAHead: the chain of a log that lost its end is intact; only a head from outside tells.
func TestCutLogIsFoundWithAHead(t *testing.T) {
	l := memory.NewLog(nil)
	c, _ := open(t, l)
	if _, err := c.Commit(t.Context(), noon, []broker.Group{group("a", 5)}); err != nil {
		t.Fatal(err)
	}
	seq, head := c.Head()
	l.Cut(3)
	open(t, l) // nobody notices
	again := broker.NewCommitter(l, registry())
	again.Expect(seq, head)
	err := again.Open(t.Context(), func(event.Envelope) error { return nil })
	if bad, ok := event.FirstBad(err); !ok || bad != 4 {
		t.Fatalf("got %v", err)
	}
}

// TestMisfiledRecordIsFound: a record's subject and id are outside the bytes that the chain covers.
func TestMisfiledRecordIsFound(t *testing.T) {
	for name, change := range map[string]func(*broker.Record){
		"subject": func(r *broker.Record) { r.Subject = "tt.ev.run.lamp-2.lamp_lit" },
		"id":      func(r *broker.Record) { r.ID = "z.0" },
	} {
		spy := &counting{Log: memory.NewLog(nil)}
		c, _ := open(t, &misfiling{Log: spy, change: change})
		if _, err := c.Commit(t.Context(), noon, []broker.Group{group("a", 1)}); err != nil {
			t.Fatal(err)
		}
		err := c.Open(t.Context(), func(event.Envelope) error { return nil })
		if bad, ok := event.FirstBad(err); !ok || bad != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// misfiling changes what is outside a record's bytes.
type misfiling struct {
	broker.Log
	change func(*broker.Record)
}

func (m *misfiling) Append(ctx context.Context, expect uint64, recs []broker.Record) (uint64, error) {
	for i := range recs {
		m.change(&recs[i])
	}
	return m.Log.Append(ctx, expect, recs)
}
