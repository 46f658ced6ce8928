package agent_test

import (
	"net/http"
	"testing"
	"time"

	"tensorturn/agent"
)

// A machine whose clock is near keeps it; one that is hours off takes the hub's, and goes back when it is set right.
func TestHubClock(t *testing.T) {
	hub := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var shift time.Duration
	c := agent.NewHubClock(func() time.Time { return hub.Add(shift) })
	hear := func(at time.Time) bool { return c.Hear(http.Header{"Date": {at.Format(http.TimeFormat)}}) }
	for _, s := range []struct {
		name  string
		shift time.Duration // of the machine's clock
		off   time.Duration // want
		news  bool
	}{
		{"exact", 0, 0, false}, {"a little ahead", 29 * time.Second, 0, false}, {"an hour ahead", time.Hour, -time.Hour, true},
		{"a second later", time.Hour + time.Second, -time.Hour, false}, {"an hour behind", -time.Hour, time.Hour, true}, {"set right", 0, 0, true},
	} {
		shift = s.shift
		if news := hear(hub); news != s.news || c.Off() != s.off {
			t.Errorf("%s: off by %s (news %v), want %s (%v)", s.name, c.Off(), news, s.off, s.news)
		}
		if d := c.Now().Sub(hub).Abs(); d > 30*time.Second {
			t.Errorf("%s: its time is %s off", s.name, d)
		}
	}
	shift = time.Hour
	if c.Hear(http.Header{"Date": {"yesterday"}}) || c.Hear(http.Header{}) || c.Off() != 0 {
		t.Error("an answer without a date changes the clock")
	}
}
