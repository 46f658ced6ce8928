package hub

import (
	"slices"
	"testing"
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain"
)

// speak lets an agent process of a's machine sync once, and tells whether it was sent away.
func (w *world) speak(a *fakeAgent, inc domain.Incarnation, counter uint64) (fenced bool) {
	answer := w.step(Sync{Machine: a.id, Request: wire.SyncRequest{Version: wire.Version, Incarnation: inc, Counter: counter, Slots: make([]wire.SlotReport, len(a.slots))}})[0]
	return domain.KindOf(answer.Err) == domain.KindFenced
}

// Two agent processes with one key are told from a restart whose last messages come late, and from a process that was thought to be
// over and is not.
func TestContested(t *testing.T) {
	w := newWorld(t)
	a := w.enrol("a", 1, 1)
	w.enrol("b", 1, 1)
	w.agents = w.agents[1:] // a's processes speak by hand
	contested := func() bool { return slices.Contains(w.core.Contested(), a.id) }
	w.speak(a, "first", 1)
	w.speak(a, "second", 1)
	for n := uint64(2); n < 4; n++ {
		if !w.speak(a, "first", n) || contested() {
			t.Fatalf("message %d of the process before: contested %v", n, contested())
		}
		w.speak(a, "first", n) // a repetition proves nothing
	}
	if !w.speak(a, "first", 4) || !contested() || len(w.core.Contested()) != 1 {
		t.Fatalf("a process that goes on beside its successor: %v", w.core.Contested())
	}
	n := uint64(5)
	for range 3 { // beside a live successor it stays so
		w.now = w.now.Add(time.Second)
		w.speak(a, "second", n)
		w.speak(a, "first", n)
		n++
	}
	if !contested() {
		t.Error("forgotten while both speak")
	}
	w.pass(testLease - time.Second)
	if !contested() {
		t.Error("forgotten before a lease time was over")
	}
	w.pass(time.Second)
	if contested() {
		t.Error("not forgotten a lease time after the rival fell silent")
	}
	if w.speak(a, "first", n) || contested() { // second is silent: first is the one that runs
		t.Error("the only process that speaks is sent away or contested")
	}
}

// The process that was refused only because a late message had come before it is no rival once it is believed.
func TestBelievedAgainIsNotContested(t *testing.T) {
	w := newWorld(t)
	a := w.enrol("a", 1, 1)
	w.agents = nil
	w.speak(a, "real", 1)
	w.speak(a, "ghost", 1)
	for n := uint64(2); n < 9; n++ {
		w.now = w.now.Add(time.Second)
		w.speak(a, "real", n)
	}
	if len(w.core.Contested()) != 0 {
		t.Error("it is contested by a process that never was")
	}
}
