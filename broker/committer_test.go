package broker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tensorturn/broker"
	"tensorturn/broker/brokertest"
	"tensorturn/broker/memory"
	"tensorturn/domain"
	"tensorturn/domain/event"
)

type lit struct {
	Watts int    `msgpack:"watts"`
	Note  string `msgpack:"note,omitempty"`
}

func (*lit) EventName() string { return "lamp.lit" }
func (*lit) Line() string      { return "lit" }

func registry() *event.Registry {
	r := event.NewRegistry()
	r.Add("lamp.lit", 1, func() event.Data { return &lit{} })
	return r
}

// group makes a group of n events.
func group(id string, n int) broker.Group {
	g := broker.Group{Command: domain.CommandID(id), Actor: "operator", Corr: "evening"}
	for i := range n {
		g.Events = append(g.Events, event.Event{Kind: event.KindRun, ID: "lamp-1", Data: &lit{Watts: i}})
	}
	return g
}

var noon = time.Date(2026, 11, 30, 12, 0, 0, 123_456_789, time.FixedZone("there", 3600))

func open(t *testing.T, l broker.Log) (*broker.Committer, []event.Envelope) {
	t.Helper()
	c := broker.NewCommitter(l, registry())
	var es []event.Envelope
	if err := c.Open(t.Context(), func(e event.Envelope) error { es = append(es, e); return nil }); err != nil {
		t.Fatal(err)
	}
	return c, es
}

func TestCommittedEventsAreReadBack(t *testing.T) {
	l := memory.NewLog(nil)
	c, _ := open(t, l)
	var want []event.Envelope
	for i, gs := range [][]broker.Group{{group("a", 1)}, {group("b", 3), group("c", 2)}, nil, {group("d", domain.MaxBatchEvents)}} {
		es, err := c.Commit(t.Context(), noon.Add(time.Duration(i)*time.Second), gs)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, es...)
	}
	again, got := open(t, l)
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	seq, head := c.Head()
	if s, h := again.Head(); s != seq || h != head || seq != 1006 {
		t.Errorf("heads %d %s and %d %s", seq, head.Short(), s, h.Short())
	}
	e := want[3]
	if e.Seq != 4 || e.ID != "b.2" || e.Cause != "b" || e.Actor != "operator" || e.Corr != "evening" || e.Version != 1 {
		t.Errorf("envelope %+v", e)
	}
	if at := time.Date(2026, 11, 30, 11, 0, 1, 123_456_000, time.UTC); e.Time != at {
		t.Errorf("time %v, want %v", e.Time, at)
	}
}

// TestGroupsStayWhole counts the appends that a commit needs.
func TestGroupsStayWhole(t *testing.T) {
	cases := map[string]struct {
		sizes   []int
		appends []int // records of each
	}{
		"all in one":              {[]int{1, 1, 1}, []int{3}},
		"just full":               {[]int{600, 400}, []int{1000}},
		"one over":                {[]int{600, 401}, []int{600, 401}},
		"a full one in between":   {[]int{1, 1000, 1}, []int{1, 1000, 1}},
		"small ones fill the gap": {[]int{900, 200, 700, 100}, []int{900, 1000}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spy := &counting{Log: memory.NewLog(nil)}
			c, _ := open(t, spy)
			var gs []broker.Group
			for i, n := range tc.sizes {
				gs = append(gs, group(fmt.Sprintf("g-%d", i), n))
			}
			if _, err := c.Commit(t.Context(), noon, gs); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.appends, spy.sizes); d != "" {
				t.Fatal(d)
			}
		})
	}
}

// counting notes the size of every append.
type counting struct {
	broker.Log
	sizes []int
}

func (c *counting) Append(ctx context.Context, expect uint64, recs []broker.Record) (uint64, error) {
	c.sizes = append(c.sizes, len(recs))
	return c.Log.Append(ctx, expect, recs)
}

func TestLargeBytesAreCut(t *testing.T) {
	spy := &counting{Log: memory.NewLog(nil)}
	c, _ := open(t, spy)
	heavy := func(id string, n int) broker.Group {
		g := group(id, n)
		for i := range g.Events {
			g.Events[i].Data = &lit{Note: strings.Repeat("x", domain.MaxEventBytes-64)}
		}
		return g
	}
	if _, err := c.Commit(t.Context(), noon, []broker.Group{heavy("a", 40), heavy("b", 40)}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{40, 40}, spy.sizes); d != "" {
		t.Fatal(d)
	}
	if _, err := c.Commit(t.Context(), noon, []broker.Group{heavy("c", 70)}); domain.KindOf(err) != domain.KindInvalid {
		t.Fatalf("a group of 35 MiB: %v", err)
	}
}

func TestRefusedGroupsLeaveNothing(t *testing.T) {
	for name, bad := range map[string]broker.Group{
		"no events":       group("a", 0),
		"too many events": group("a", domain.MaxBatchEvents+1),
		"no command":      group("", 1),
		"wild command":    group("a.b", 1),
		"no actor":        {Command: "a", Events: group("a", 1).Events},
		"too much data": {Command: "a", Actor: "hub", Events: []event.Event{{Kind: event.KindRun, ID: "lamp-1",
			Data: &lit{Note: strings.Repeat("x", domain.MaxEventBytes)}}}},
	} {
		t.Run(name, func(t *testing.T) {
			l := memory.NewLog(nil)
			c, _ := open(t, l)
			if _, err := c.Commit(t.Context(), noon, []broker.Group{group("good", 1), bad}); domain.KindOf(err) != domain.KindInvalid {
				t.Fatalf("got %v", err)
			}
			if last, _ := l.Last(t.Context()); last != 0 {
				t.Fatalf("%d records are stored", last)
			}
			if _, err := c.Commit(t.Context(), noon, []broker.Group{group("good", 1)}); err != nil {
				t.Fatalf("afterwards: %v", err)
			}
		})
	}
}

// once gives the fault for the next operation op alone.
func once(op memory.Op, f memory.Fault) func(memory.Op) memory.Fault {
	return func(o memory.Op) memory.Fault {
		if o != op {
			return memory.None
		}
		defer func() { f = memory.None }()
		return f
	}
}

func TestLostAnswersAreResolved(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  memory.Fault
		stored bool
	}{
		"failed before it happened":     {memory.FailBefore, false},
		"failed after it happened":      {memory.FailAfter, true},
		"conflict with its own records": {memory.FailConflict, true},
		"disk full":                     {memory.Full, false},
		"store is read-only":            {memory.ReadOnly, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := memory.NewLog(nil)
			c, _ := open(t, l)
			if _, err := c.Commit(t.Context(), noon, []broker.Group{group("a", 2)}); err != nil {
				t.Fatal(err)
			}
			l.SetFault(once(memory.OpAppend, tc.fault))
			es, err := c.Commit(t.Context(), noon, []broker.Group{group("b", 3)})
			if tc.stored && (err != nil || len(es) != 3) {
				t.Fatalf("stored, but %d events, %v", len(es), err)
			}
			if !tc.stored && (domain.KindOf(err) != domain.KindUnavailable || len(es) != 0) {
				t.Fatalf("not stored, but %d events, %v", len(es), err)
			}
			if !tc.stored { // the same decision again
				if _, err := c.Commit(t.Context(), noon, []broker.Group{group("b", 3)}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := c.Commit(t.Context(), noon, []broker.Group{group("c", 1)}); err != nil {
				t.Fatal(err)
			}
			if _, es := open(t, l); len(es) != 6 {
				t.Fatalf("%d events in the log, want 6", len(es))
			}
		})
	}
}

// TestCallersDeadlineDoesNotHideTheOutcome: the answer is lost because the caller's time is over, and still the
// committer finds out.
func TestCallersDeadlineDoesNotHideTheOutcome(t *testing.T) {
	l := memory.NewLog(nil)
	c, _ := open(t, l)
	ctx, cancel := context.WithCancel(t.Context())
	l.SetFault(func(op memory.Op) memory.Fault {
		if op == memory.OpAppend {
			cancel()
			return memory.FailAfter
		}
		return memory.None
	})
	if es, err := c.Commit(ctx, noon, []broker.Group{group("a", 2)}); err != nil || len(es) != 2 {
		t.Fatalf("%d events, %v", len(es), err)
	}
}

func TestUnknownOutcomeStopsUntilOpened(t *testing.T) {
	for name, dead := range map[string]memory.Op{"end cannot be found": memory.OpLast, "tail cannot be read": memory.OpRead} {
		t.Run(name, func(t *testing.T) {
			l := memory.NewLog(nil)
			c, _ := open(t, l)
			l.SetFault(func(op memory.Op) memory.Fault {
				switch op {
				case memory.OpAppend:
					return memory.FailAfter
				case dead:
					return memory.FailBefore
				}
				return memory.None
			})
			if _, err := c.Commit(t.Context(), noon, []broker.Group{group("a", 2)}); domain.KindOf(err) != domain.KindUnavailable {
				t.Fatalf("got %v", err)
			}
			l.SetFault(nil)
			if _, err := c.Commit(t.Context(), noon, []broker.Group{group("b", 1)}); domain.KindOf(err) != domain.KindUnavailable {
				t.Fatalf("it goes on without knowing: %v", err)
			}
			n := 0
			if err := c.Open(t.Context(), func(event.Envelope) error { n++; return nil }); err != nil || n != 2 {
				t.Fatalf("%d events, %v", n, err)
			}
			if _, err := c.Commit(t.Context(), noon, []broker.Group{group("b", 1)}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestForeignWriterStopsTheHub(t *testing.T) {
	for name, intrude := range map[string]broker.Record{
		"another command":              brokertest.Records("other", 1)[0],
		"the same id with other bytes": {Subject: "tt.ev.run.lamp-1.lamp_lit", ID: "b.0", Data: []byte("x")},
	} {
		t.Run(name, func(t *testing.T) {
			l := memory.NewLog(nil)
			c, _ := open(t, l)
			if _, err := c.Commit(t.Context(), noon, []broker.Group{group("a", 1)}); err != nil {
				t.Fatal(err)
			}
			l.Intrude(intrude)
			for range 2 { // and it stays stopped
				_, err := c.Commit(t.Context(), noon, []broker.Group{group("b", 1)})
				var conflict *broker.ConflictError
				if !errors.As(err, &conflict) || domain.KindOf(err) != domain.KindConflict || conflict.Expected != 1 || conflict.Actual != 2 {
					t.Fatalf("got %v", err)
				}
				if domain.NextOf(err) == "" {
					t.Error("the error says not what to do")
				}
			}
		})
	}
}

// TestTwoHubsOnOneLog: both have read the log; the one that writes second is told.
func TestTwoHubsOnOneLog(t *testing.T) {
	l := memory.NewLog(nil)
	one, _ := open(t, l)
	two, _ := open(t, l)
	if _, err := one.Commit(t.Context(), noon, []broker.Group{group("a", 2)}); err != nil {
		t.Fatal(err)
	}
	var conflict *broker.ConflictError
	if _, err := two.Commit(t.Context(), noon, []broker.Group{group("b", 2)}); !errors.As(err, &conflict) {
		t.Fatalf("got %v", err)
	}
	if _, es := open(t, l); len(es) != 2 {
		t.Fatalf("%d events in the log", len(es))
	}
}

func TestSameCommandTwiceIsNoForeignWriter(t *testing.T) {
	c, _ := open(t, memory.NewLog(nil))
	if _, err := c.Commit(t.Context(), noon, []broker.Group{group("a", 2)}); err != nil {
		t.Fatal(err)
	}
	_, err := c.Commit(t.Context(), noon, []broker.Group{group("a", 2)})
	var conflict *broker.ConflictError
	if domain.KindOf(err) != domain.KindConflict || errors.As(err, &conflict) {
		t.Fatalf("got %v, want a conflict that blames no other writer", err)
	}
	if _, err := c.Commit(t.Context(), noon, []broker.Group{group("b", 1)}); err != nil {
		t.Fatalf("afterwards: %v", err)
	}
}

// TestLuck runs a hub that does as the committer's errors say, under random faults, and compares the log with what was
// confirmed: every confirmed command is there once, every other one at most once.
func TestLuck(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := memory.NewLog(func(op memory.Op) memory.Fault {
			if r.IntN(3) > 0 {
				return memory.None
			}
			if op == memory.OpAppend {
				return memory.Fault(r.IntN(6))
			}
			return memory.FailBefore
		})
		c := broker.NewCommitter(l, registry())
		ignore := func(event.Envelope) error { return nil }
		opened := false
		confirmed := map[string]bool{}
		for i := range 60 {
			if !opened {
				opened = c.Open(t.Context(), ignore) == nil
				continue
			}
			id := fmt.Sprintf("c-%d", i)
			_, err := c.Commit(t.Context(), noon, []broker.Group{group(id, 1+r.IntN(4))})
			if err == nil {
				confirmed[id] = true
			} else if domain.KindOf(err) != domain.KindUnavailable {
				t.Fatalf("seed %d: %v", seed, err)
			}
			opened = err == nil
		}
		l.SetFault(nil)
		_, es := open(t, l)
		stored := map[string]bool{}
		for _, e := range es {
			stored[string(e.Cause)] = true
		}
		for id := range confirmed {
			if !stored[id] {
				t.Errorf("seed %d: confirmed command %s is lost", seed, id)
			}
		}
	}
}
