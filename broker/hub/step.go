package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tensorturn/broker"
	"tensorturn/domain"
	"tensorturn/domain/event"
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
	delivered uint64    // sequence of the newest event given out by Replayed or Committed

	stale    error     // why the fold is behind the log, nil when it is not
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
	return &Core{cfg: cfg, log: log, reg: reg}
}

// Open reads the whole log, verifies its chain and rebuilds what has been decided. A log that is damaged or written by
// somebody else does not fail Open: the hub then serves reads of the sound part and refuses every change (ReadOnly).
// An error means that the log could not be read and Open may be tried again.
func (c *Core) Open(ctx context.Context, now time.Time) error {
	c.now = now
	c.mem = newLiveness(now)
	if err := c.rebuild(ctx, c.cfg.Replayed); err != nil {
		return err
	}
	return nil
}

// rebuild replays the log into a new fold. Events not yet given out go to tell, if set.
func (c *Core) rebuild(ctx context.Context, tell func([]event.Envelope)) error {
	f := newFold()
	var news []event.Envelope
	flush := func() {
		if len(news) > 0 && tell != nil {
			tell(news)
		}
		news = nil
	}
	cm := broker.NewCommitter(c.log, c.reg)
	err := cm.Open(ctx, func(e event.Envelope) error {
		f.apply(e)
		if e.Seq > c.delivered && tell != nil {
			c.delivered = e.Seq
			if news = append(news, e); len(news) == domain.MaxBatchEvents {
				flush()
			}
		}
		return nil
	})
	flush()
	if err != nil && domain.KindOf(err) != domain.KindIntegrity {
		return err
	}
	if err != nil && c.readOnly == nil {
		c.readOnly = readOnlyBecause(err)
	}
	if seq, _ := cm.Head(); err == nil && seq < c.delivered && c.readOnly == nil {
		c.readOnly = readOnlyBecause(event.Break(seq+1, fmt.Sprintf("the log ends at %d, but %d was stored", seq, c.delivered), nil))
	}
	c.fold, c.committer = f, cm
	c.mem.prune(f)
	c.stale = nil
	return nil
}

func readOnlyBecause(err error) error {
	return &domain.Error{Kind: domain.KindIntegrity, Op: "the hub is read-only", Why: err.Error(),
		Next: "stop the hub, run `tensorturn log verify`, and restore the log from a backup"}
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
// running (a suspended virtual machine, a stopped process): silence in that time is nobody's fault and grace begins anew.
func (c *Core) advance(now time.Time) time.Time {
	if now.Before(c.now) {
		return c.now
	}
	if now.Sub(c.now) > c.cfg.Timing.Suspect {
		c.mem.since = now
		for id, r := range c.mem.rounds {
			r.opened = r.opened.Add(now.Sub(c.now))
			c.mem.rounds[id] = r
		}
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
	case Tick:
		b.tick()
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

// fail notes that the fold is ahead of the log. A foreign writer ends all writing: two hubs on one log is the one
// thing that retrying makes worse.
func (c *Core) fail(b *batch, err error) {
	c.stale = err
	c.rebuilt++
	for m := range b.synced {
		if ct := c.mem.contacts[m]; ct != nil {
			ct.counter = 0 // what the failed batch had heard must be heard again
		}
	}
	if domain.KindOf(err) == domain.KindIntegrity && c.readOnly == nil {
		c.readOnly = readOnlyBecause(err)
	}
	if foreignWriter(err) && c.readOnly == nil {
		c.readOnly = &domain.Error{Kind: domain.KindIntegrity, Op: "the hub is read-only", Why: "another writer appended to its log", Err: err,
			Next: "stop all hubs on this log, run `tensorturn log verify`, and start one of them"}
	}
}

// blame gives the error that the inputs of a failed batch are told. An event that can never be stored is the fault of
// one of them; when there are several, all may come again, and the culprit will meet its error alone.
func (c *Core) blame(in []Input, err error) error {
	switch {
	case c.readOnly != nil:
		return c.readOnly
	case domain.KindOf(err) == domain.KindInvalid && len(in) > 1:
		return domain.Unavailable("hub", "a batch could not be stored because of one of its commands", "send the command again", err)
	}
	return err
}

// recover rebuilds the fold from the log and gives out what was stored although its append failed.
func (c *Core) recover(ctx context.Context, now time.Time) ([]Output, error) {
	if now.Before(c.reopen) {
		return nil, domain.Unavailable("hub", "the log could not be written and is not tried again yet",
			"ask again in a few seconds; if it lasts, look at the hub's disk", c.stale)
	}
	c.reopen = now.Add(backoff(c.failures, reopenFirst, reopenMost))
	c.failures++
	var outs []Output
	err := c.rebuild(ctx, func(es []event.Envelope) { outs = append(outs, Committed{Events: es}) })
	if err != nil {
		c.stale = err
		return outs, domain.Unavailable("hub", "the log cannot be read", "look at the hub's disk", err)
	}
	return outs, nil
}

// refuseAll answers every input of a batch with one error.
func (c *Core) refuseAll(now time.Time, in []Input, err error) []Output {
	var outs []Output
	for i, x := range in {
		switch x.(type) {
		case Sync:
			outs = append(outs, Answer{Index: i, Reply: errorReply(c.cfg.Timing, now, err), Err: err})
		case Do:
			outs = append(outs, Answer{Index: i, Err: err})
		}
	}
	return outs
}

// outputs gives the world's share of a durable batch.
func (c *Core) outputs(b *batch, committed []event.Envelope) []Output {
	var outs []Output
	if len(committed) > 0 {
		outs = append(outs, Committed{Events: committed})
	}
	for i, a := range b.answers {
		switch {
		case a.sync != nil:
			outs = append(outs, Answer{Index: i, Reply: c.desire(a.sync, b.now)})
		case a.err != nil && a.isSync:
			outs = append(outs, Answer{Index: i, Reply: errorReply(c.cfg.Timing, b.now, a.err), Err: a.err})
		case a.done:
			outs = append(outs, Answer{Index: i, Err: a.err})
		}
	}
	for _, m := range b.admit {
		outs = append(outs, Admit{Machine: m})
	}
	for _, m := range b.cutOff {
		outs = append(outs, CutOff{Machine: m})
	}
	for _, m := range b.wakes {
		if !b.synced[m] {
			outs = append(outs, Wake{Machine: m})
		}
	}
	for _, h := range b.beats {
		outs = append(outs, h)
	}
	return append(outs, c.jobs(b.now)...)
}

// foreignWriter reports whether the committer found somebody else's records behind its own. A conflict that is only the
// cause of an unknown outcome says nothing yet.
func foreignWriter(err error) bool {
	var conflict *broker.ConflictError
	return domain.KindOf(err) == domain.KindConflict && errors.As(err, &conflict)
}
