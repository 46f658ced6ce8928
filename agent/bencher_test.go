package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker/wire"
	"tensorturn/domain/machine"
)

// measuring is a machine that takes 10 s to be measured.
type measuring struct {
	began, stopped atomic.Int32
	fails          atomic.Bool
}

func (m *measuring) measure(ctx context.Context) (machine.Score, error) {
	began := m.began.Add(1)
	select {
	case <-ctx.Done():
		m.stopped.Add(1)
		return machine.Score{}, ctx.Err()
	case <-time.After(10 * time.Second):
		if m.fails.Load() {
			return machine.Score{}, errors.New("the link fails")
		}
		return machine.Score{Up: float64(began)}, nil
	}
}

func word(bench int, runs ...string) *wire.SyncReply {
	r := &wire.SyncReply{Bench: bench, Slots: make([]wire.SlotDesire, 2)}
	if len(runs) > 0 {
		r.Slots[1].Run = "r-1"
	}
	return r
}

// A benchmark waits for the machine to be idle, stops the moment one slot gets work, and is told until the hub knows it.
func TestBencher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &measuring{}
		var hints atomic.Int32
		b := newBencher(m.measure, func() { hints.Add(1) }, zerolog.Nop())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { b.run(ctx); close(ended) }()
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() } // the bubble's time

		b.hear(word(1, "r-1"))
		pass(time.Hour)
		if m.began.Load() != 0 {
			t.Fatal("it measures while a slot works")
		}
		b.hear(word(1))
		pass(benchRest - time.Millisecond)
		if m.began.Load() != 0 {
			t.Fatal("it measures at once: the next lease may be on its way")
		}
		pass(2 * time.Millisecond)
		if m.began.Load() != 1 {
			t.Fatal("it does not measure an idle machine")
		}
		pass(5 * time.Second)
		b.hear(word(1, "r-1"))
		synctest.Wait()
		if m.stopped.Load() != 1 || b.result() != nil {
			t.Fatal("a lease came and it goes on")
		}
		b.hear(word(1))
		pass(benchRest + 11*time.Second)
		if got := b.result(); got == nil || got.Number != 1 || got.Score.Up != 2 || hints.Load() != 1 {
			t.Fatalf("%+v, %d hints", got, hints.Load())
		}
		b.hear(word(1)) // the result was lost: it is told again, and nothing is measured again
		pass(time.Hour)
		if b.result() == nil || m.began.Load() != 2 {
			t.Fatalf("%+v, %d begun", b.result(), m.began.Load())
		}
		b.hear(word(0))
		if b.result() != nil {
			t.Fatal("what the hub knows is told again")
		}
		m.fails.Store(true)
		b.hear(word(2))
		pass(benchRest + 11*time.Second)
		m.fails.Store(false)
		if b.result() != nil {
			t.Fatal("a failure is a result")
		}
		if b.waits() != "the link fails" || hints.Load() != 2 {
			t.Fatalf("after a failure it waits for %q, %d hints", b.waits(), hints.Load())
		}
		pass(benchAgain + 11*time.Second)
		if got := b.result(); got == nil || got.Number != 2 || m.began.Load() != 4 || b.waits() != "" {
			t.Fatalf("%+v after %d, waits for %q", got, m.began.Load(), b.waits())
		}
		b.hear(word(3)) // asked anew while the second was on its way
		if b.result() != nil {
			t.Fatal("an overtaken result is told")
		}
		pass(benchRest + time.Second)
		b.hear(word(0)) // the machine rests from now on
		synctest.Wait()
		if m.stopped.Load() != 2 {
			t.Fatal("it measures a machine that rests")
		}
		b.hear(word(3))
		pass(benchRest + time.Second)
		cancel()
		<-ended
		if m.stopped.Load() != 3 {
			t.Fatal("the agent's end does not end the measuring")
		}
	})
}
