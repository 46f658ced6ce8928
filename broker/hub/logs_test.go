package hub

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain"
)

// beat is a sync of a machine that holds nothing.
func beat(counter uint64, pieces ...wire.LogPiece) wire.SyncRequest {
	return wire.SyncRequest{Version: wire.Version, Incarnation: "i-1", Counter: counter, Slots: []wire.SlotReport{{Phase: wire.PhaseIdle}}, Logs: pieces,
		Beat: wire.Telemetry{Sandbox: "bubblewrap: full"}}
}

// A reader's wish goes out with every reply until its piece comes; only the machine that was asked can answer it.
func TestLogWish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.start()
		defer r.s.Stop()
		r.found("a", "b")
		r.request("Aa", beat(1))
		if said, ok := r.s.Telemetry("a"); !ok || said.Sandbox != "bubblewrap: full" {
			t.Errorf("%+v, %v", said, ok)
		}
		type answer struct {
			p   wire.LogPiece
			err error
		}
		got := make(chan answer, 1)
		go func() {
			p, err := r.s.ReadLog(t.Context(), "a", wire.LogWish{Run: "r-1", Attempt: wire.AnyAttempt, Member: wire.AnyMember, Bytes: 10})
			got <- answer{p, err}
		}()
		synctest.Wait()
		if r.link.wakes["Aa"] == 0 {
			t.Error("the machine was not woken")
		}
		var wish wire.LogWish
		for i := range 2 { // a reply may be lost
			reply := r.request("Aa", beat(uint64(2+i)))
			if len(reply.Logs) != 1 || reply.Logs[0].Run != "r-1" {
				t.Fatalf("reply %d says %+v", i, reply.Logs)
			}
			wish = reply.Logs[0]
		}
		if reply := r.request("Ab", beat(1, wire.LogPiece{ID: wish.ID, Data: []byte("forged")})); len(reply.Logs) != 0 {
			t.Errorf("another machine is asked: %+v", reply.Logs)
		}
		r.request("Aa", beat(4, wire.LogPiece{ID: wish.ID + 1, Data: []byte("stray")}))
		if reply := r.request("Aa", beat(5, wire.LogPiece{ID: wish.ID, Found: true, Data: []byte("hello")})); len(reply.Logs) != 0 {
			t.Errorf("it is asked again: %+v", reply.Logs)
		}
		if a := <-got; a.err != nil || string(a.p.Data) != "hello" {
			t.Errorf("%+v", a)
		}
	})
}

// Wishes that nobody answers end with their readers, and their number is bounded.
func TestLogWishesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.start()
		defer r.s.Stop()
		r.found("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		errs := make(chan error, maxLogWishes)
		for range maxLogWishes {
			go func() {
				_, err := r.s.ReadLog(ctx, "a", wire.LogWish{Run: "r-1", Bytes: 1})
				errs <- err
			}()
		}
		synctest.Wait()
		if _, err := r.s.ReadLog(ctx, "a", wire.LogWish{Run: "r-1", Bytes: 1}); domain.KindOf(err) != domain.KindUnavailable {
			t.Errorf("one too many: %v", err)
		}
		if reply := r.request("Aa", beat(1)); len(reply.Logs) != wire.MaxLogWishes {
			t.Errorf("%d wishes in a reply", len(reply.Logs))
		}
		time.Sleep(time.Minute)
		for range maxLogWishes {
			if err := <-errs; domain.KindOf(err) != domain.KindUnavailable {
				t.Errorf("%v", err)
			}
		}
		if reply := r.request("Aa", beat(2)); len(reply.Logs) != 0 {
			t.Errorf("%d wishes are left", len(reply.Logs))
		}
	})
}
