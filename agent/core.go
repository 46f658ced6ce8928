package agent

import (
	"math/rand/v2"
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain"
)

// Defaults of CoreConfig.
const (
	DefaultStopLimit = 2 * time.Minute  // a chunk (10 s), its delta, and 50 MB over 10 Mbit/s (40 s), with room
	DefaultIdleClose = 10 * time.Minute // a trainer outlives the pause between rounds, not the end of a run
)

// CoreConfig is what Core knows from the start.
type CoreConfig struct {
	Incarnation domain.Incarnation // drawn anew by each process
	Slots       int                // 1 to domain.MaxSlotsPerMachine
	Build       string             // version of the agent
	Head        []byte             // newest signed head kept on disk, may be empty
	// HeadSeq gives the sequence that a signed head covers; ok is false when the hub's key did not sign it. It is a pure
	// function. Nil: whatever the hub says is kept.
	HeadSeq    func(head []byte) (seq uint64, ok bool)
	RenewAfter time.Duration // until half of the credential's life is over, 0 for never
	StopLimit  time.Duration // how long a drain may take, DefaultStopLimit when 0
	IdleClose  time.Duration // how long an idle slot keeps its trainer, DefaultIdleClose when 0
	Seed       uint64        // of the jitter
}

// Core compares what the hub wants with what the slots hold. One goroutine at a time calls Step.
type Core struct {
	cfg     CoreConfig
	rand    *rand.Rand
	contact contact
	slots   []*slot

	head    []byte
	renewAt time.Duration // 0: never
	muted   bool          // the sync in flight makes no offers: it was sent behind the fence

	stopping bool
	stopAt   time.Duration // give up the drain
	exited   bool

	merged    map[domain.RunID]int // up to which round deltas were dropped
	wanted    []domain.Digest      // blobs the hub asks for again, the first one under way when resending
	resending bool
	resendAt  time.Duration
	resends   int             // failures in a row
	missing   []domain.Digest // wanted blobs the cache has not
}

// NewCore makes a Core that holds nothing. It panics on a slot count out of range.
func NewCore(cfg CoreConfig) *Core {
	domain.Assert(cfg.Slots >= 1 && cfg.Slots <= domain.MaxSlotsPerMachine, "an agent has 1 to MaxSlotsPerMachine slots")
	if cfg.StopLimit == 0 {
		cfg.StopLimit = DefaultStopLimit
	}
	if cfg.IdleClose == 0 {
		cfg.IdleClose = DefaultIdleClose
	}
	c := &Core{
		cfg: cfg, head: cfg.Head, renewAt: cfg.RenewAfter,
		rand:   rand.New(rand.NewPCG(cfg.Seed, 0x9e3779b97f4a7c15)), // the second word only has to be fixed
		merged: map[domain.RunID]int{},
	}
	for i := range cfg.Slots {
		c.slots = append(c.slots, &slot{index: i})
	}
	return c
}

// Step applies one input and returns what has to be done now, in order. now is the time since the process started on
// a clock that also runs while the machine sleeps; it never goes back. After Exit it returns nothing.
func (c *Core) Step(now time.Duration, in Input) []Effect {
	if c.exited {
		return nil
	}
	out := c.apply(now, in)
	if reason := c.ending(now); reason != "" {
		return c.exit(out, reason)
	}
	for _, s := range c.slots {
		if e := c.next(now, s); e != nil {
			out = append(out, e)
		}
	}
	if e := c.resend(now); e != nil {
		out = append(out, e)
	}
	return c.speak(now, out)
}

// apply takes the input in. Only replies and the stop answer with effects of their own.
func (c *Core) apply(now time.Duration, in Input) []Effect {
	switch in := in.(type) {
	case Tick:
		c.timeout(now)
	case Replied:
		return c.replied(now, in)
	case SyncFailed:
		if c.contact.awaits(in.Counter) {
			c.contact.failed(now, c.rand)
		}
	case Woken:
		c.contact.woken()
	case CredentialSaved:
		c.renewAt = 0
		if in.RenewAfter > 0 {
			c.renewAt = now + in.RenewAfter
		}
	case StopRequested:
		if !c.stopping {
			c.stopping, c.stopAt = true, now+c.cfg.StopLimit
			c.contact.hurry()
		}
	case Resent:
		c.resent(in)
	case ResendFailed:
		c.resending = false
		c.resends++
		c.resendAt = now + jitter(c.rand, transferFirst, c.transferCap(), c.resends)
	default:
		c.result(now, in)
	}
	return nil
}

// ending says why the agent should end now, empty when it should not.
func (c *Core) ending(now time.Duration) string {
	switch {
	case c.contact.stop && c.stopping:
		return "drained"
	case c.contact.stop:
		return "the hub has drained this machine"
	case c.stopping && now >= c.stopAt:
		return "the drain took longer than its limit"
	case c.stopping && c.contact.failures > 0 && !c.holding():
		return "stopped; the hub cannot be reached and no slot holds work"
	}
	return ""
}

func (c *Core) holding() bool {
	for _, s := range c.slots {
		if s.lease != nil {
			return true
		}
	}
	return false
}

func (c *Core) exit(out []Effect, reason string) []Effect {
	for _, s := range c.slots {
		if s.lease != nil {
			out = append(out, Abandon{Slot: s.index, Epoch: s.lease.epoch})
			s.lease = nil
		}
	}
	c.exited = true
	return append(out, Exit{Reason: reason})
}

// Next is the time at which Core wants a Tick if nothing else happens before.
func (c *Core) Next() time.Duration {
	at := c.contact.due()
	if c.stopping {
		at = min(at, c.stopAt)
	}
	if !c.resending && len(c.wanted) > 0 {
		at = min(at, c.resendAt)
	}
	for _, s := range c.slots {
		if t, ok := s.due(c.cfg.IdleClose); ok {
			at = min(at, t)
		}
	}
	return at
}

// Fenced reports whether the agent has been without contact for so long that it must not commit.
func (c *Core) Fenced(now time.Duration) bool { return c.contact.fenced(now) }

// Held gives the epochs the slots hold, 0 for none, by slot: for the performer's clean-up and for invariant checks.
func (c *Core) Held() []domain.Epoch {
	held := make([]domain.Epoch, len(c.slots))
	for i, s := range c.slots {
		if s.lease != nil {
			held[i] = s.lease.epoch
		}
	}
	return held
}

// speak sends a sync when one is due.
func (c *Core) speak(now time.Duration, out []Effect) []Effect {
	if !c.contact.ready(now) {
		return out
	}
	n := c.contact.sent(now)
	return append(out, SendSync{Request: c.request(now, n)})
}

func (c *Core) request(now time.Duration, counter uint64) wire.SyncRequest {
	r := wire.SyncRequest{
		Version: wire.Version, Incarnation: c.cfg.Incarnation, Counter: counter,
		Stopping: c.stopping, Head: c.head, Renew: c.renewAt > 0 && now >= c.renewAt,
		Build: domain.Clip(c.cfg.Build, wire.MaxText), Missing: append([]domain.Digest(nil), c.missing...),
	}
	c.muted = c.Fenced(now)
	for _, s := range c.slots {
		r.Slots = append(r.Slots, s.report(c.muted))
	}
	return r
}
