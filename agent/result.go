package agent

import (
	"fmt"
	"math"
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/redact"
	"tensorturn/domain/run"
)

// lostSnapshotAfter is how often a delta may fail to be made from the disk before its chunks are trained again.
const lostSnapshotAfter = 3

// result takes the end or the progress of a slot effect in. Results of another epoch, or of an operation that is not
// under way, are late and ignored.
func (c *Core) result(now time.Duration, in Input) {
	switch in := in.(type) {
	case Moved:
		if s, _ := c.working(in.Slot, in.Epoch); s != nil && in.Bytes > 0 {
			s.progress += uint64(in.Bytes)
		}
	case Stepped:
		c.stepped(in)
	case Prepared:
		if _, l := c.ended(in.Slot, in.Epoch, opPrepare); l != nil {
			l.prepared = true
			if l.member != nil {
				l.member.keptAt = now
			}
			c.contact.tell()
		}
	case ChunkTrained:
		c.chunkTrained(in)
	case DeltaMade:
		if _, l := c.ended(in.Slot, in.Epoch, opDelta); l != nil && in.Number == l.number && in.Boundary == len(l.trained) {
			l.delta = &delta{boundary: in.Boundary, blob: in.Blob, began: l.opAt}
		}
	case Uploaded:
		c.uploaded(now, in)
	case ResetDone:
		if _, l := c.ended(in.Slot, in.Epoch, opReset); l != nil && in.Boundary == len(l.trained) {
			l.lost = false
		}
	case InitDone:
		if _, l := c.ended(in.Slot, in.Epoch, opInit); l != nil {
			l.init = &wire.Init{Base: in.Base, Layout: in.Layout, Params: in.Params, Take: in.Take}
		}
	case MemberKept, MemberFinished, MemberPredicted:
		c.memberResult(now, in)
	case Evaluated:
		c.evaluated(in)
	case TaskError:
		_, l := c.working(in.Slot, in.Epoch)
		if l != nil {
			l.spoiled = l.op != opTrain // what fails in the making of a delta fails again
		}
		if _, l := c.ended(in.Slot, in.Epoch, opNone); l != nil {
			l.tail = nil
			for _, line := range in.Tail {
				l.tail = append(l.tail, redact.Text(line))
			}
			c.fail(l, in.Error)
		}
	case TransferError:
		c.transferError(now, in)
	default:
		panic(fmt.Sprintf("broken promise: the agent's core does not know the input %T", in))
	}
}

// working gives the slot and its lease if it holds the epoch, nil otherwise.
func (c *Core) working(index int, epoch domain.Epoch) (*slot, *lease) {
	if index < 0 || index >= len(c.slots) {
		return nil, nil
	}
	s := c.slots[index]
	if s.lease == nil || s.lease.epoch != epoch || s.lease.op == opNone {
		return nil, nil
	}
	return s, s.lease
}

// ended is working for the end of the operation (opNone: any), which it marks.
func (c *Core) ended(index int, epoch domain.Epoch, op operation) (*slot, *lease) {
	s, l := c.working(index, epoch)
	if s == nil || op != opNone && l.op != op {
		return nil, nil
	}
	l.op = opNone
	if op != opNone {
		l.failures, l.retryAt = 0, 0
	}
	return s, l
}

func (c *Core) stepped(in Stepped) {
	s, l := c.working(in.Slot, in.Epoch)
	if s == nil || in.Steps <= 0 {
		return
	}
	s.progress += uint64(in.Steps)
	if l.op == opTrain {
		l.partial.samples += in.Samples
		l.partial.seconds += in.Seconds
		if run.IsLoss(in.Loss) {
			loss := in.Loss
			s.loss = &loss
		}
	}
}

func (c *Core) chunkTrained(in ChunkTrained) {
	if _, l := c.working(in.Slot, in.Epoch); l == nil || l.partial.chunk != in.Chunk {
		return
	}
	s, l := c.ended(in.Slot, in.Epoch, opTrain)
	if s == nil {
		return
	}
	if !run.IsLoss(in.Loss) {
		l.spoiled = true // the weights diverged before it showed
		c.fail(l, fmt.Sprintf("the loss of chunk %d is not finite", in.Chunk))
		return
	}
	s.progress++ // a chunk is progress even when its steps were too quick to be reported
	if l.member != nil {
		l.member.memberTrained(in)
		s.measured(in)
		return // the hub hears of it at its interval: nobody waits for a chunk of a member
	}
	l.trained = append(l.trained, wire.TrainedChunk{Chunk: in.Chunk, Steps: max(0, in.Steps), Seconds: chunkTime(in.Seconds), Loss: in.Loss})
	l.floor = max(l.floor, len(l.trained))
	l.keep(len(l.trained))
	s.measured(in)
	c.contact.tell()
}

// measured takes the speed of a chunk into the slot's.
func (s *slot) measured(in ChunkTrained) {
	if in.Seconds <= 0 || in.Samples <= 0 {
		return
	}
	speed := float64(in.Samples) / in.Seconds
	if s.speed == 0 {
		s.speed = speed
	}
	s.speed += speedWeight * (speed - s.speed)
}

func (c *Core) uploaded(now time.Duration, in Uploaded) {
	s, l := c.ended(in.Slot, in.Epoch, opUpload)
	switch {
	case s == nil:
		return
	case l.member != nil:
		l.member.memberUploaded(in.Blob)
		s.upload = (now - l.opAt).Seconds()
	case l.init != nil && l.init.Base == in.Blob:
		l.uploaded = true
	case l.delta != nil && l.delta.blob == in.Blob:
		l.delta.uploaded = true
		s.upload = (now - l.delta.began).Seconds()
	}
	s.progress++
	c.contact.tell()
}

func (c *Core) evaluated(in Evaluated) {
	s, l := c.ended(in.Slot, in.Epoch, opEvaluate)
	if s == nil {
		return
	}
	if !finite(in.Accuracy) || !run.IsLoss(in.Loss) || in.R2 != nil && !run.IsLoss(*in.R2) || in.MAE != nil && !run.IsLoss(*in.MAE) {
		c.fail(l, "the evaluation is not finite")
		return
	}
	s.progress++
	l.eval = &wire.Eval{Samples: max(0, in.Samples), Accuracy: positive(in.Accuracy), Loss: in.Loss, R2: in.R2, MAE: in.MAE}
	c.contact.tell()
}

// fail keeps the trainer's failure in the report until the hub has taken it.
func (c *Core) fail(l *lease, why string) {
	if why == "" {
		why = "the trainer failed without a reason"
	}
	l.err = reason(why)
	c.contact.tell()
}

// reason is what the hub is told of a failure: it is kept for ever and shown to everyone, so nothing secret may be in it.
func reason(why string) string { return domain.Clip(redact.Text(why), domain.MaxReasonLength) }

// transferError paces the next attempt, and forgets what the failure has destroyed.
func (c *Core) transferError(now time.Duration, in TransferError) {
	_, l := c.working(in.Slot, in.Epoch)
	if l == nil {
		return
	}
	op := l.op
	l.op = opNone
	l.failures++
	l.retryAt = now + jitter(c.rand, transferFirst, c.transferCap(), l.failures)
	if l.member != nil {
		l.memberTorn(op, in.Local)
		return
	}
	switch op {
	case opTrain: // nobody knows how far it came
		l.lost = true
		if !l.held(len(l.trained)) {
			l.fromBase()
		}
	case opReset:
		if len(l.trained) > 0 { // the snapshot cannot be read; the base can be fetched
			l.fromBase()
		}
	case opDelta:
		if in.Local && l.failures >= lostSnapshotAfter {
			l.fromBase()
		}
	case opUpload:
		if in.Local {
			l.delta, l.init = nil, nil // made again from snapshot or seed
		}
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// positive is x, or 0 where x is no measure of anything.
func positive(x float64) float64 {
	if !finite(x) || x < 0 {
		return 0
	}
	return x
}

// chunkTime is x as the hub takes it. A machine may have slept for a weekend over a chunk: that is no reason not to be heard.
func chunkTime(x float64) float64 { return min(positive(x), run.MaxChunkSeconds) }
