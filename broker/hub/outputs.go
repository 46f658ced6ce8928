package hub

import (
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
)

// refuseAll answers every input of a batch with one error. A worker's result that could not be decided is lost: its job
// is given out again.
func (c *Core) refuseAll(now time.Time, in []Input, err error) []Output {
	var outs []Output
	for i, x := range in {
		switch x := x.(type) {
		case Sync:
			outs = append(outs, Answer{Index: i, Reply: errorReply(c.cfg.Timing, now, err), Err: err})
		case Do:
			outs = append(outs, Answer{Index: i, Err: err})
		case Inspected:
			c.mem.redoInspection(x)
		case Merged:
			c.mem.redoMerge(x)
		case Counted:
			c.mem.redoVote(x)
		}
	}
	return outs
}

// stored gives what the world must hear of facts that are in the log, whichever way that became known: the answer to an append may be
// lost, and a revoked machine must be cut off all the same.
func stored(events []event.Envelope) []Output {
	if len(events) == 0 {
		return nil
	}
	outs := []Output{Committed{Events: events}}
	for _, e := range events {
		switch e.Data.(type) {
		case *machine.BecameEnrolled:
			outs = append(outs, Admit{Machine: domain.MachineID(e.Agg)})
		case *machine.BecameRevoked:
			outs = append(outs, CutOff{Machine: domain.MachineID(e.Agg)})
		}
	}
	return outs
}

// outputs gives the world's share of a durable batch.
func (c *Core) outputs(b *batch, committed []event.Envelope) []Output {
	outs := stored(committed)
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
