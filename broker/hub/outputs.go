package hub

import (
	"time"

	"tensorturn/domain/event"
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

// outputs gives the world's share of a durable batch.
func (c *Core) outputs(b *batch, committed []event.Envelope) []Output {
	var outs []Output
	if len(committed) > 0 {
		outs = append(outs, Committed{Events: committed})
	}
	for _, m := range b.admit {
		outs = append(outs, Admit{Machine: m})
	}
	for _, m := range b.cutOff {
		outs = append(outs, CutOff{Machine: m})
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
