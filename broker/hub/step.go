package hub

import (
	"context"
	"time"

	"tensorturn/broker"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// Core decides. It has one caller at a time, no goroutine, no clock and no network of its own; the log is its only port.
type Core struct {
	cfg       Config
	log       broker.Log
	reg       *event.Registry
	committer *broker.Committer
	fold      *fold
	mem       *liveness
	now       time.Time // newest time seen; time never goes back
	readOnly  error     // why no state may change any more, nil when it may
	began     Position  // of the base that Open began from, zero when it read the whole log
	delivered uint64    // sequence of the newest event given out by Replayed or Committed

	stale    error     // why the fold is behind the log, nil when it is not
	deaf     time.Time // since when: inputs are refused meanwhile
	rebuilt  int       // how often the fold was rebuilt after a failed append
	failures int       // appends and rebuilds failed in a row
	reopen   time.Time // no attempt before
	stats    Stats
}

// Stats counts what should not happen, for tests, metrics and the simulator.
type Stats struct {
	PlanRefused   int // actions of the planner that run.Decide refused: defects
	ReportRefused int // parts of reports that were refused: late or wrong agents
	PlanEndless   int // plannings that did not converge within maxPlanPasses
}

// New makes a hub over a log. Open comes first.
func New(cfg Config, log broker.Log, reg *event.Registry) *Core {
	if cfg.Decide == nil {
		cfg.Decide = run.Decide
	}
	return &Core{cfg: cfg, log: log, reg: reg}
}

// Step takes a batch of at most MaxInputs inputs, decides them in order, commits everything they yield as one append
// and gives what the world must do: one Answer for each Sync and Do, and the rest in a fixed order. now is the hub's
// clock; if it goes back, the newest time seen holds.
func (c *Core) Step(ctx context.Context, now time.Time, in []Input) []Output {
	domain.Assert(len(in) <= MaxInputs, "a step has at most MaxInputs inputs")
	domain.Assert(c.mem != nil, "Open comes before Step")
	now = c.advance(now)
	var outs []Output
	if c.stale != nil {
		var err error
		if outs, err = c.recover(ctx, now); err != nil {
			return append(outs, c.refuseAll(now, in, err)...)
		}
	}
	if c.readOnly != nil {
		return append(outs, c.refuseAll(now, in, c.readOnly)...)
	}
	b := newBatch(c, now, len(in))
	for i, x := range in {
		b.handle(i, x)
	}
	b.settle()
	committed, err := c.commit(ctx, b)
	if err != nil {
		c.fail(b, err)
		more, _ := c.recover(ctx, now)
		return append(append(outs, more...), c.refuseAll(now, in, c.blame(in, err))...)
	}
	return append(outs, c.outputs(b, committed)...)
}

// advance moves the clock. A gap between steps that would make a machine suspect means that the hub itself was not
// running (a suspended virtual machine, a stopped process, a stalled disk): silence in that time is nobody's fault and
// does not count.
func (c *Core) advance(now time.Time) time.Time {
	if now.Before(c.now) {
		return c.now
	}
	if gap := now.Sub(c.now); gap > c.cfg.Timing.Suspect {
		c.mem.forgive(gap)
		c.deaf = c.deaf.Add(gap) // not twice
	}
	c.now = now
	return now
}

func (b *batch) handle(i int, x Input) {
	switch x := x.(type) {
	case Sync:
		b.sync(i, x)
	case Do:
		b.do(i, x)
	case Inspected:
		b.inspected(x)
	case Merged:
		b.merged(x)
	case Counted:
		b.voted(x)
	case Tick:
		b.tick(x)
	case Unlinked:
		b.c.mem.unlinked(x.Machine, b.now)
	}
}

// commit appends the batch. What the log stored must be what was decided.
func (c *Core) commit(ctx context.Context, b *batch) ([]event.Envelope, error) {
	if len(b.groups) == 0 {
		return nil, nil
	}
	stored, err := c.committer.Commit(ctx, b.now, b.groups)
	if err != nil {
		return nil, err
	}
	domain.Assert(len(stored) == len(b.events), "the log stored every decided event")
	for i, e := range stored {
		domain.Assert(e.Seq == b.events[i].Seq, "an event has the sequence with which it was decided")
	}
	c.failures = 0
	c.delivered = b.seq
	return stored, nil
}
