package hub

import (
	"fmt"
	"testing"
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/machine"
)

// A machine that says something else in every sync writes into the log what its allowance lets it, and what it said last is heard when
// there is room again. The clock stands still while it floods.
func TestAMachineCannotFillTheLog(t *testing.T) {
	const syncs = 300
	gone := func(i int) *wire.Away {
		if i%2 == 0 {
			return nil
		}
		return &wire.Away{Cause: machine.ByAbsence, Reason: "its GPU is gone"}
	}
	for name, c := range map[string]struct {
		edit func(*wire.SyncRequest, int)
		most int // events at the standing clock
	}{
		"labels":     {func(r *wire.SyncRequest, i int) { r.Labels = map[string]string{"n": fmt.Sprint(i)} }, factsAtOnce},
		"pauses":     {func(r *wire.SyncRequest, i int) { r.Slots[0].Away = gone(i) }, factsAtOnce + 1},
		"slots":      {func(r *wire.SyncRequest, i int) { r.Slots[i%2].Away, r.Slots[2+i%2].Away = gone(i/4), gone(i) }, factsAtOnce + 4},
		"benchmarks": {func(r *wire.SyncRequest, i int) { flip(r, i) }, factsAtOnce + 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.enrol("evil", 4, 1)
			w.sync(a)
			at, last := len(w.events), 0
			say := func() {
				last++
				r := a.request()
				c.edit(&r, last)
				w.step(Sync{Machine: a.id, Request: r})
			}
			for range syncs {
				say()
			}
			if n := len(w.events) - at; n > c.most || n < factsAtOnce-2 {
				t.Errorf("%d events of %d syncs at a standing clock, at most %d are allowed\n%s", n, syncs, c.most, w.tail(5))
			}
			at = len(w.events)
			for range syncs { // a second apart: one in allowanceTime
				w.now = w.now.Add(time.Second)
				say()
			}
			if n, most := len(w.events)-at, int(syncs*time.Second/allowanceTime)+4; n > most {
				t.Errorf("%d events of %d syncs a second apart, at most %d are allowed", n, syncs, most)
			}
		})
	}
}

// flip is a machine whose driver is another one each time, and that has measured it at once.
func flip(r *wire.SyncRequest, i int) {
	driver := fmt.Sprintf("55%d.1", i%2)
	r.Beat.Vitals = &machine.Vitals{Driver: driver}
	r.Bench = &wire.Bench{Number: i/2 + 1, Score: machine.Score{Driver: driver, Disk: 1e9}}
}

// What found no room is heard once the machine sticks to it.
func TestWhatFoundNoRoomIsHeardLater(t *testing.T) {
	w := newWorld(t)
	a := w.enrol("a", 1, 1)
	w.sync(a)
	say := func(label string, away *wire.Away) {
		r := a.request()
		r.Labels, r.Slots[0].Away = map[string]string{"n": label}, away
		w.step(Sync{Machine: a.id, Request: r})
	}
	busy := &wire.Away{Cause: machine.ByOthers, Reason: "another program uses its GPU"}
	for i := range 2 * factsAtOnce {
		say(fmt.Sprint(i), nil)
	}
	say("last", busy)
	if m := w.core.fold.machines["a"]; m.SlotUsable(0) || m.Labels()["n"] == "last" {
		t.Errorf("a pause is heard at once, a label is not: %v %v", m.SlotUsable(0), m.Labels())
	}
	w.now = w.now.Add(allowanceTime)
	say("last", nil)
	if w.core.fold.machines["a"].SlotUsable(0) {
		t.Error("the pause is not paid for and has ended")
	}
	for range 2 {
		w.now = w.now.Add(allowanceTime)
		say("last", nil)
	}
	if m := w.core.fold.machines["a"]; !m.SlotUsable(0) || m.Labels()["n"] != "last" {
		t.Errorf("usable %v, labels %v", m.SlotUsable(0), m.Labels())
	}
}

// A kill every five seconds for ten minutes is ordinary life in a drill: each process is heard. One that begins anew in every sync is
// not, and after a pause of its own it is.
func TestStartsAreAllowed(t *testing.T) {
	w := newWorld(t)
	a := w.enrol("a", 1, 1)
	start := func() error {
		a.restart()
		w.sync(a)
		if a.last.Error != nil {
			return a.last.Error.Err("sync")
		}
		return nil
	}
	w.must(start())
	for range 120 {
		w.now = w.now.Add(5 * time.Second)
		w.must(start())
	}
	heard := 0
	for range 300 {
		if err := start(); err == nil {
			heard++
		} else if domain.KindOf(err) != domain.KindUnavailable {
			t.Fatal(err)
		}
	}
	if heard > startsAtOnce {
		t.Errorf("%d processes at a standing clock, at most %d are allowed", heard, startsAtOnce)
	}
	w.now = w.now.Add(allowanceTime)
	w.sync(a) // the same process, not a newer one
	if a.last.Error != nil {
		t.Errorf("it has run for %v and is not heard: %v", allowanceTime, a.last.Error)
	}
}
