package agent

import (
	"math"
	"math/rand/v2"
	"time"

	"tensorturn/domain"
)

// Pacing of syncs. Everything else follows from the lease time and the interval the hub says.
const (
	firstInterval = time.Second           // before the hub has said one
	firstCap      = 60 * time.Second      // back-off before the first contact: 1 to 60 s with full jitter
	minTimeout    = time.Second           // a sync over a bad link may take this long
	maxTimeout    = 10 * time.Second      // and no longer: the next one says the same, newer
	minGap        = 5 * time.Millisecond  // between two syncs, so that tiny chunks do not flood the hub
	minInterval   = 10 * time.Millisecond // a hub that says less is not obeyed
	never         = time.Duration(1<<63 - 1)
)

// contact is the agent's side of the conversation: at most one sync in flight, a counter that grows, a lease clock.
// The clock starts when an acknowledged sync was sent, not when its answer came: the hub's own clock started later.
type contact struct {
	counter  uint64
	inFlight bool
	sentAt   time.Duration // of the newest sync
	nextAt   time.Duration // of the next one if nothing happens
	news     bool          // something happened that the hub should know at once
	failures int           // in a row
	stale    bool          // the sync in flight was sent before the newest wake: its failure says nothing of the link there is now

	ackedAt  time.Duration // when the newest acknowledged sync was sent
	acked    bool          // ever
	interval time.Duration
	lease    time.Duration // L
	stop     bool          // the hub's word
}

// tell marks news. While syncs fail they wait for the back-off.
func (k *contact) tell() { k.news = true }

// hurry is tell that does not wait for the back-off: the process ends.
func (k *contact) hurry() {
	k.news = true
	k.failures = 0
}

// woken is hurry for a link that is back or a hub that calls: a sync that is under way then went over what was there before.
func (k *contact) woken() {
	k.hurry()
	k.stale = k.inFlight
}

func (k *contact) awaits(counter uint64) bool { return k.inFlight && counter == k.counter }

func (k *contact) ready(now time.Duration) bool {
	return !k.inFlight && now >= k.due()
}

// due is when the next sync goes out, or when the one in flight is given up.
func (k *contact) due() time.Duration {
	switch {
	case k.inFlight:
		return k.sentAt + k.timeout()
	case k.counter == 0:
		return 0
	case k.news && k.failures == 0:
		return min(k.nextAt, k.sentAt+minGap)
	}
	return k.nextAt
}

func (k *contact) sent(now time.Duration) uint64 {
	k.counter++
	k.inFlight, k.news, k.stale, k.sentAt = true, false, false, now
	return k.counter
}

func (k *contact) timeout() time.Duration {
	return min(max(domain.TimingOf(k.lease).Suspect, minTimeout), maxTimeout)
}

// failed paces the next attempt. With contact lost it stays within L/8, the hub's own measure of suspicion.
func (k *contact) failed(now time.Duration, r *rand.Rand) {
	k.inFlight = false
	if k.stale {
		k.nextAt = now
		return
	}
	k.failures++
	first, most := firstInterval, firstCap
	if k.acked {
		first, most = k.interval, max(k.interval, domain.TimingOf(k.lease).Suspect)
	}
	k.nextAt = now + jitter(r, first, most, k.failures)
}

// acknowledged takes the hub's timing and renews the lease clock.
func (k *contact) acknowledged(now, interval, lease time.Duration, stop bool) {
	k.inFlight, k.failures = false, 0
	k.acked, k.ackedAt = true, k.sentAt
	if lease > 0 {
		k.lease = lease
	}
	if interval <= 0 {
		interval = domain.TimingOf(k.lease).Sync
	}
	k.interval = max(interval, minInterval)
	k.nextAt = now + k.interval
	k.stop = stop
}

// fenced reports whether nine tenths of the lease time have passed since the last acknowledged sync.
func (k *contact) fenced(now time.Duration) bool {
	return !k.acked || now-k.ackedAt >= domain.TimingOf(k.lease).Fence
}

// jitter is full jitter: anything from 0 to first × 2^(failures−1), at most most.
func jitter(r *rand.Rand, first, most time.Duration, failures int) time.Duration {
	ceiling := float64(first) * math.Exp2(float64(min(failures, 32)-1))
	return time.Duration(r.Float64() * min(ceiling, float64(most)))
}

// transferFirst begins the back-off of transfers; Core.transferCap ends it.
const transferFirst = time.Second

// transferCap is the longest pause between attempts of a transfer: 60 s, or a quarter of the lease time, so that what was refused
// by a full hub has most of a lease for its first part when there is room: 8 MiB take 64 s at 1 Mbit/s.
func (c *Core) transferCap() time.Duration {
	if c.contact.lease <= 0 {
		return 60 * time.Second
	}
	return min(60*time.Second, max(time.Second, c.contact.lease/4))
}

// timeout gives up a sync that has been in flight for too long.
func (c *Core) timeout(now time.Duration) {
	if c.contact.inFlight && now >= c.contact.due() {
		c.contact.failed(now, c.rand)
	}
}
