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
	f, at, err := c.begin(ctx)
	if err != nil {
		return err
	}
	if c.fold == nil {
		c.began = at
	}
	var news []event.Envelope
	flush := func() {
		if len(news) > 0 && tell != nil {
			tell(news)
		}
		news = nil
	}
	cm := broker.NewCommitter(c.log, c.reg)
	if k := c.cfg.Known; k.Seq > 0 {
		cm.Expect(k.Seq, k.Digest)
	}
	err = cm.OpenBehind(ctx, at.Seq, at.Digest, func(e event.Envelope) error {
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
	if c.stale != nil { // what machines said was refused: that was not their silence
		c.mem.forgive(c.now.Sub(c.deaf))
	}
	c.stale = nil
	return nil
}

func readOnlyBecause(err error) error {
	return &domain.Error{Kind: domain.KindIntegrity, Op: "the hub is read-only", Why: "its log is not to be trusted", Err: err,
		Next: "while it runs `tensorturn log verify` names the first bad record; then stop it and put it together again with `tensorturn log repair`, or restore its folder from a backup"}
}

// fail notes that the fold is ahead of the log. A foreign writer ends all writing: two hubs on one log is the one
// thing that retrying makes worse.
func (c *Core) fail(b *batch, err error) {
	c.stale, c.deaf = err, c.now
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
			Next: "stop all hubs on this log, start one of them, and check it with `tensorturn log verify`"}
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
	err := c.rebuild(ctx, func(es []event.Envelope) { outs = append(outs, stored(es)...) })
	if err != nil {
		c.stale = err
		return outs, domain.Unavailable("hub", "the log cannot be read", "look at the hub's disk", err)
	}
	return outs, nil
}

// Retry lets the next step try a log again that could not be written, without the pause that failures have earned.
func (c *Core) Retry() { c.reopen, c.failures = time.Time{}, 0 }

// foreignWriter reports whether the committer found somebody else's records behind its own. A conflict that is only the
// cause of an unknown outcome says nothing yet.
func foreignWriter(err error) bool {
	var conflict *broker.ConflictError
	return domain.KindOf(err) == domain.KindConflict && errors.As(err, &conflict)
}
