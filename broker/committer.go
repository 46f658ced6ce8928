package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// resolveLimit bounds the reading that finds out what became of an append whose answer was lost. It is longer than a
// stalled disk usually stalls; the caller's own deadline may be over by then and does not count.
const resolveLimit = 20 * time.Second

// Committer writes decided events behind the ones it has read: sequence, id and link for each, groups whole, one sync for
// as many groups as fit. It has one caller at a time and no goroutine; whoever collects decisions does so before it.
//
// An append that fails may have happened. The committer then reads the log's tail and looks for its own ids before it
// concludes anything: found, the commit succeeded; nothing there, it failed and may be tried again; somebody else's
// records, there is a second writer and this one must stop.
type Committer struct {
	log    Log
	reg    *event.Registry
	seq    uint64                   // of the last record known
	head   domain.Digest            // its digest
	known  map[uint64]domain.Digest // from outside the log: Expect
	opened bool
	stop   error // why nothing may be written until Open has read the log again
}

// NewCommitter makes a committer over a log. Open comes first.
func NewCommitter(log Log, reg *event.Registry) *Committer {
	return &Committer{log: log, reg: reg, known: map[uint64]domain.Digest{}}
}

// Expect adds a digest known from outside the log, such as a signed head, for the Open that follows: the record at seq
// must be there and have it. Without one, a log that was cut at the end of a batch looks like a shorter log.
func (c *Committer) Expect(seq uint64, d domain.Digest) { c.known[seq] = d }

// Head is the last record's sequence and digest; the next committed event gets the sequence behind it, and so on.
func (c *Committer) Head() (uint64, domain.Digest) { return c.seq, c.head }

// Open reads the whole log, verifies its chain and gives every event to apply, in order. Errors: domain.KindIntegrity
// with the first bad sequence (event.FirstBad), domain.KindUnavailable when the log cannot be read, and apply's own.
// The events before a break have been applied. After an error nothing can be committed; Open may be called again.
func (c *Committer) Open(ctx context.Context, apply func(event.Envelope) error) error {
	return c.OpenBehind(ctx, 0, "", apply)
}

// OpenBehind is Open for a reader who holds what the records up to seq gave, and knows that the record there has the
// digest (Holds): it reads and verifies only those behind it.
func (c *Committer) OpenBehind(ctx context.Context, seq uint64, digest domain.Digest, apply func(event.Envelope) error) error {
	c.opened = false
	v := event.ResumeVerifier(c.reg, seq, digest)
	for seq, d := range c.known {
		v.Expect(seq, d)
	}
	seq, head, err := Verify(ctx, c.log, v, apply)
	c.seq, c.head = seq, head
	if err != nil {
		return err
	}
	c.opened, c.stop = true, nil
	return nil
}

// Commit stores the groups in order and returns their events with the places they have. One append holds as many whole
// groups as fit into domain.MaxBatchEvents; when a later append fails, the events of the earlier ones are stored and
// returned beside the error. now is the hub's clock; the events carry it in whole microseconds.
//
// Errors: domain.KindInvalid for a group that can never be stored (nothing of the call is); domain.KindUnavailable when
// nothing more was stored (try again) or when that could not be found out (Open again first); domain.KindIntegrity when
// the log has lost records; a *ConflictError in the chain when another writer has appended: stop the hub.
func (c *Committer) Commit(ctx context.Context, now time.Time, groups []Group) ([]event.Envelope, error) {
	domain.Assert(c.opened, "Open comes before Commit")
	if c.stop != nil {
		return nil, c.stop
	}
	batches, err := c.encode(now, groups)
	if err != nil {
		return nil, err
	}
	var stored []event.Envelope
	for _, b := range batches {
		if err := c.append(ctx, b); err != nil {
			return stored, err
		}
		stored = append(stored, b.envs...)
	}
	return stored, nil
}

// encode gives every event its place and cuts the groups into batches.
func (c *Committer) encode(now time.Time, groups []Group) ([]batch, error) {
	var batches []batch
	seq, prev := c.seq, c.head
	at := now.UTC().Truncate(time.Microsecond)
	for _, g := range groups {
		one, err := c.encodeGroup(g, at, seq, prev)
		if err != nil {
			return nil, err
		}
		if n := len(batches); n == 0 || !batches[n-1].fits(one) {
			batches = append(batches, batch{})
		}
		batches[len(batches)-1].add(one)
		last := len(one.recs) - 1
		seq, prev = one.recs[last].Seq, event.Digest(one.recs[last].Data)
	}
	return batches, nil
}

// encodeGroup encodes one group behind the record at seq with digest prev.
func (c *Committer) encodeGroup(g Group, at time.Time, seq uint64, prev domain.Digest) (batch, error) {
	var b batch
	if err := g.check(); err != nil {
		return b, err
	}
	for i, ev := range g.Events {
		seq++
		e := event.Envelope{Seq: seq, ID: event.ID(g.Command, i), Kind: ev.Kind, Agg: ev.ID, Time: at, Actor: g.Actor, Cause: g.Command,
			Corr: g.Corr, Prev: prev, Data: ev.Data, Version: c.reg.Latest(ev.Data.EventName())}
		domain.Assert(e.Version > 0, "event "+ev.Data.EventName()+" is registered before it is committed")
		data, err := event.Encode(e)
		if err != nil {
			return b, err
		}
		prev = event.Digest(data)
		b.recs = append(b.recs, Record{Seq: seq, Subject: e.Subject(), ID: e.ID, Data: data})
		b.envs, b.bytes = append(b.envs, e), b.bytes+len(data)
	}
	if b.bytes > maxBatchBytes {
		return b, domain.Invalid("commit "+string(g.Command), fmt.Sprintf("%d bytes, more than %d in one batch", b.bytes, maxBatchBytes), "")
	}
	return b, nil
}

// append stores one batch, or finds out that it is stored.
func (c *Committer) append(ctx context.Context, b batch) error {
	last, err := c.log.Append(ctx, c.seq, b.recs)
	want := b.recs[len(b.recs)-1]
	if err == nil && last != want.Seq {
		err = &ConflictError{Expected: want.Seq, Actual: last} // no Log does this; if one did, the tail tells
	}
	if err != nil {
		if err = c.resolve(ctx, b, err); err != nil {
			return err
		}
	}
	c.seq, c.head = want.Seq, event.Digest(want.Data)
	return nil
}

// resolve finds out what became of an append that failed with cause. Nil says that the batch is stored.
func (c *Committer) resolve(ctx context.Context, b batch, cause error) error {
	if domain.KindOf(cause) == domain.KindInvalid {
		return cause // refused for what it is: nothing was sent
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveLimit)
	defer cancel()
	last, err := c.log.Last(ctx)
	if err != nil {
		return c.unsure(cause, err)
	}
	if last < c.seq {
		c.stop = event.Break(last+1, fmt.Sprintf("the log ends at %d, but %d was stored", last, c.seq), cause)
		return c.stop
	}
	if last == c.seq {
		return notStored(cause)
	}
	return c.compare(ctx, b, last, cause)
}

// compare reads the tail behind the last known record: the batch itself, or records of somebody else.
func (c *Committer) compare(ctx context.Context, b batch, last uint64, cause error) error {
	found := 0
	for rec, err := range c.log.Read(ctx, c.seq+1) {
		if domain.KindOf(err) == domain.KindIntegrity {
			c.stop = err
			return err
		}
		if err != nil {
			return c.unsure(cause, err)
		}
		own := b.recs[found]
		if rec.Seq != own.Seq || rec.ID != own.ID || rec.Subject != own.Subject || string(rec.Data) != string(own.Data) {
			return c.foreign(rec, last)
		}
		if found++; found == len(b.recs) {
			return nil
		}
	}
	c.stop = event.Break(c.seq+uint64(found)+1, fmt.Sprintf("%d of %d records of one batch are stored", found, len(b.recs)), cause)
	return c.stop
}

// unsure stops the committer: whether the batch is stored is not known, so that neither trying again nor going on is safe.
func (c *Committer) unsure(cause, err error) error {
	c.stop = domain.Unavailable("commit", "the append's outcome is not known and the log's end cannot be read",
		"the hub reads the log again before it writes", errors.Join(cause, err))
	return c.stop
}

// notStored is the error for a batch of which nothing is in the log.
func notStored(cause error) error {
	var conflict *ConflictError
	if errors.As(cause, &conflict) {
		// The log's end is where it was expected, so the conflict was about an id: the batch was decided twice.
		return domain.Conflict("commit", "an event id of the batch is in the log already", "read the log again and decide anew")
	}
	if domain.KindOf(cause) == domain.KindUnavailable {
		return cause
	}
	return domain.Unavailable("commit", "the batch was not stored", "try again", cause)
}

// foreign stops the committer for good: somebody else writes to this log.
func (c *Committer) foreign(rec Record, last uint64) error {
	c.stop = &domain.Error{Kind: domain.KindConflict, Op: "commit",
		Why:  fmt.Sprintf("record %d (%s) is not ours", rec.Seq, domain.Clip(rec.ID, 80)),
		Next: "stop all hubs on this log but one: a log has one writer", Err: &ConflictError{Expected: c.seq, Actual: last}}
	return c.stop
}
