package agent

import (
	"net/http"
	"sync/atomic"
	"time"
)

// clockSlack is how far the machine's clock may be off before the hub's is used: the Date of an answer has whole seconds and
// is old by the way here. It is below what a hub forgives in a proof (two minutes).
const clockSlack = 30 * time.Second

// HubClock tells the time as the hub has it, for what the hub checks by its own clock: proofs of the key and the end of a
// credential. Home machines lose hours over a flat battery or a wrong time zone, and must train all the same. It learns from the Date
// of the hub's answers, whose sender TLS has checked, and trusts the machine's own clock while that is near.
type HubClock struct {
	wall func() time.Time
	off  atomic.Int64 // nanoseconds to add, 0 while the machine's clock is near
}

// NewHubClock begins with the machine's own clock.
func NewHubClock(wall func() time.Time) *HubClock { return &HubClock{wall: wall} }

// Now is the hub's time.
func (c *HubClock) Now() time.Time { return c.wall().Add(time.Duration(c.off.Load())) }

// Off is how far the machine's clock is behind the hub's, 0 while it is near.
func (c *HubClock) Off() time.Duration { return time.Duration(c.off.Load()) }

// Hear learns from an answer of the hub. It reports whether the time it tells has changed by more than the slack: what was refused for
// its time is worth asking again.
func (c *HubClock) Hear(h http.Header) (changed bool) {
	at, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return false
	}
	off := at.Sub(c.wall())
	if off.Abs() < clockSlack {
		off = 0
	}
	was := time.Duration(c.off.Load())
	if (off-was).Abs() < clockSlack && off != 0 {
		return false // the same, seen through another second
	}
	c.off.Store(int64(off))
	return off != was
}

// Listen makes a transport that hears every answer of base.
func (c *HubClock) Listen(base http.RoundTripper) http.RoundTripper { return hearing{c, base} }

type hearing struct {
	clock *HubClock
	base  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t hearing) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(r)
	if err == nil {
		t.clock.Hear(resp.Header)
	}
	return resp, err
}
