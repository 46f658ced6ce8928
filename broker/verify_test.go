package broker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tensorturn/broker"
	"tensorturn/broker/memory"
	"tensorturn/domain"
	"tensorturn/domain/event"
)

// filled is a log of n groups of three.
func filled(t *testing.T, n int) *memory.Log {
	t.Helper()
	l := memory.NewLog(nil)
	c, _ := open(t, l)
	var gs []broker.Group
	for i := range n {
		gs = append(gs, group(fmt.Sprintf("c-%d", i), 3))
	}
	if _, err := c.Commit(t.Context(), time.Now(), gs); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestVerifyEndsWithItsCaller: records are read ahead on another goroutine; when the caller's time is over or its apply
// fails, that goroutine ends first, and a log that was read in part never passes for one that was read.
func TestVerifyEndsWithItsCaller(t *testing.T) {
	defer goleak.VerifyNone(t)
	l := filled(t, 2000)
	ctx, cancel := context.WithCancel(t.Context())
	seen := 0
	_, _, err := broker.Verify(ctx, l, event.NewVerifier(registry()), func(event.Envelope) error {
		if seen++; seen == 10 {
			cancel()
		}
		return nil
	})
	if domain.KindOf(err) != domain.KindUnavailable || seen == 6000 {
		t.Errorf("cancelled at 10: %d events, %v", seen, err)
	}
	enough := errors.New("enough")
	last, _, err := broker.Verify(t.Context(), l, event.NewVerifier(registry()), func(e event.Envelope) error {
		if e.Seq == 300 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || last != 300 {
		t.Errorf("apply failed at 300: %d %v", last, err)
	}
}

func TestHolds(t *testing.T) {
	l := filled(t, 4)
	var digests []domain.Digest
	for rec, err := range l.Read(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, event.Digest(rec.Data))
	}
	for seq, want := range map[uint64]bool{1: true, 12: true, 5: true, 13: false, 99: false} {
		got, err := broker.Holds(t.Context(), l, seq, digests[min(int(seq), 12)-1])
		if err != nil || got != want {
			t.Errorf("%d: %v %v", seq, got, err)
		}
	}
	if got, err := broker.Holds(t.Context(), l, 5, digests[5]); got || err != nil {
		t.Errorf("another record's digest: %v %v", got, err)
	}
	l.Lose(5)
	if got, err := broker.Holds(t.Context(), l, 5, digests[4]); got || err != nil {
		t.Errorf("a lost record: %v %v", got, err)
	}
	l.SetFault(func(memory.Op) memory.Fault { return memory.FailBefore })
	if _, err := broker.Holds(t.Context(), l, 5, digests[4]); domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("a log that cannot be read: %v", err)
	}
}
