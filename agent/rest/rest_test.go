package rest

import (
	"testing"
	"time"

	"tensorturn/domain/machine"
)

// clock is a machine's own.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func TestQuietHoursByTheMachinesOwnClock(t *testing.T) {
	zone := time.FixedZone("home", 5*3600)
	c := &clock{time.Date(2026, 11, 30, 7, 59, 59, 0, zone)} // a monday
	r, err := New(machine.Rest{Hours: []string{"mon-fri 08:00-18:00"}}, c.now)
	if err != nil {
		t.Fatal(err)
	}
	rests := func(want machine.Cause) {
		t.Helper()
		if got, why := r.Why(nil); got != want {
			t.Errorf("%s: %q (%s), want %q", c.at, got, why, want)
		}
	}
	rests("")
	c.at = c.at.Add(time.Second)
	rests(machine.ByHours)
	c.at = time.Date(2026, 11, 30, 18, 0, 0, 0, zone)
	rests("")
	r.Set(machine.Rest{Hours: []string{"18:00-06:00", "not hours of a later release"}})
	rests(machine.ByHours)
	r.Set(machine.Rest{})
	rests("")
	c.at = time.Date(2026, 12, 5, 12, 0, 0, 0, zone) // a saturday
	rests("")
	if _, err := New(machine.Rest{Hours: []string{"25:00-26:00"}}, c.now); err == nil {
		t.Error("a flag that nobody can read is taken")
	}
}

// A short use changes nothing, and neither does a short absence of it.
func TestOthersWithHysteresis(t *testing.T) {
	c := &clock{time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	r, _ := New(machine.Rest{WhileUsed: true}, c.now)
	for _, step := range []struct {
		after  time.Duration
		others bool
		rests  bool
	}{
		{0, false, false}, {time.Second, true, false}, {BusyFor - time.Second, true, false},
		{0, false, false}, {0, true, false}, {BusyFor - time.Second, true, false}, {time.Second, true, true}, {time.Hour, true, true},
		{0, false, true}, {CalmFor - time.Second, false, true}, {0, true, true}, {BusyFor / 2, false, true}, {CalmFor - time.Second, false, true}, {time.Second, false, false},
	} {
		c.at = c.at.Add(step.after)
		cause, _ := r.Why(&machine.GPU{UUID: "GPU-a", Others: step.others})
		if (cause == machine.ByOthers) != step.rests {
			t.Errorf("%v, used by others %v: %q", c.at, step.others, cause)
		}
		if other, _ := r.Why(&machine.GPU{UUID: "GPU-b"}); other != "" {
			t.Errorf("the other GPU rests: %s", other)
		}
	}
	idle, _ := New(machine.Rest{}, c.now)
	for range 3 {
		if cause, _ := idle.Why(&machine.GPU{UUID: "GPU-a", Others: true}); cause != "" {
			t.Error("it rests although no rule says so")
		}
		c.at = c.at.Add(BusyFor)
	}
	idle.Set(machine.Rest{WhileUsed: true})
	if cause, _ := idle.Why(&machine.GPU{UUID: "GPU-a", Others: true}); cause != machine.ByOthers {
		t.Error("the hub's word does not count")
	}
}
