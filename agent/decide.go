package agent

import (
	"time"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// next compares what the slot holds with what the hub wants and gives the one thing to do, nil when both agree or
// something is under way.
func (c *Core) next(now time.Duration, s *slot) Effect {
	l := s.lease
	if l == nil {
		return c.idle(now, s)
	}
	if l.op != opNone || l.err != "" || l.done || now < l.retryAt {
		return nil
	}
	l.retryAt = 0
	if !l.prepared && !l.adopted {
		return c.prepare(now, s, l)
	}
	switch l.unit {
	case run.UnitInit:
		return c.initialise(now, s, l)
	case run.UnitEvaluate:
		if l.eval == nil {
			return l.begin(opEvaluate, now, RunEvaluate{Slot: s.index, Epoch: l.epoch, Model: l.want.base})
		}
	case run.UnitTrain:
		return c.train(now, s, l)
	case run.UnitMember:
		return c.member(now, s, l)
	}
	return nil
}

func (c *Core) prepare(now time.Duration, s *slot, l *lease) Effect {
	s.trainerOpen = true
	if l.member != nil {
		l.member.begin(l.want)
	}
	return l.begin(opPrepare, now, Prepare{Slot: s.index, Epoch: l.epoch, Run: l.run, Unit: l.unit, Round: l.round, Job: l.job, Base: l.want.base,
		Increment: l.want.increment, Member: l.memberNumber(), Trained: l.want.trained,
		Keep: len(l.trained), Number: l.number})
}

// idle frees the trainer of a slot that has had no lease for long.
func (c *Core) idle(now time.Duration, s *slot) Effect {
	if !s.trainerOpen || now < s.idleSince+c.cfg.IdleClose {
		return nil
	}
	s.trainerOpen, s.late = false, nil
	return CloseTrainer{Slot: s.index}
}

func (c *Core) initialise(now time.Duration, s *slot, l *lease) Effect {
	switch {
	case l.init == nil:
		return l.begin(opInit, now, RunInit{Slot: s.index, Epoch: l.epoch})
	case !l.uploaded && !c.Fenced(now):
		return l.begin(opUpload, now, Upload{Slot: s.index, Epoch: l.epoch, Blob: l.init.Base})
	}
	return nil
}

// train first obeys (a higher number, a cut), then contributes or goes on training.
func (c *Core) train(now time.Duration, s *slot, l *lease) Effect {
	l.obey()
	goal, contribute := l.goal()
	full := len(l.trained) >= goal
	chunk, ok := l.nextChunk()
	if !ok && l.want.contribute { // what was lost is no longer claimed
		full = true
	}
	switch {
	case contribute && full && len(l.trained) > 0:
		return c.contribute(now, s, l)
	case !l.prepared:
		l.prepareAfterAll()
		return c.prepare(now, s, l)
	case l.lost:
		return l.begin(opReset, now, Reset{Slot: s.index, Epoch: l.epoch, Boundary: len(l.trained), Base: l.want.base})
	case contribute && full || !ok:
		return nil
	}
	l.partial = partial{chunk: chunk}
	return l.begin(opTrain, now, Train{Slot: s.index, Epoch: l.epoch, Number: l.number, Chunk: chunk, Boundary: len(l.trained) + 1})
}

// obey takes a decided contribution and a cut into account. Both are facts in the log by now.
func (l *lease) obey() {
	if l.want.number > l.number {
		l.number, l.floor = l.want.number, 0
		l.fromBase()
		return
	}
	if l.want.cut == nil {
		return
	}
	k := *l.want.cut
	switch {
	case k >= len(l.trained) && k > 0: // cut already, or on the way there
	case k == 0 && !l.unclaimed(): // started again already
	case k > 0 && l.held(k):
		l.cutTo(k)
	default: // nothing is kept, or its snapshot is gone: from the base, and up to the cut again
		l.floor = k
		l.fromBase()
	}
}

// unclaimed reports whether the weights hold a chunk that is no longer the slot's.
func (l *lease) unclaimed() bool {
	have := make(map[domain.ChunkID]bool, len(l.want.claims))
	for _, c := range l.want.claims {
		have[c] = true
	}
	for _, t := range l.trained {
		if !have[t.Chunk] {
			return true
		}
	}
	return false
}

// contribute makes and sends the delta of everything trained. Without contact it waits: a delta sent now might come
// after the lease has moved on.
func (c *Core) contribute(now time.Duration, s *slot, l *lease) Effect {
	if c.Fenced(now) {
		return nil
	}
	if l.delta == nil || l.delta.boundary != len(l.trained) {
		l.delta = nil
		e := MakeDelta{
			Slot: s.index, Epoch: l.epoch, Run: l.run, Round: l.round, Number: l.number,
			Boundary: len(l.trained), Base: l.want.base, Codec: l.job.Spec.Codec,
		}
		if e.Codec.Feedback() {
			e.Samples, e.Fed = l.samples(), l.want.fed
		}
		return l.begin(opDelta, now, e)
	}
	if !l.delta.uploaded {
		return l.begin(opUpload, now, Upload{Slot: s.index, Epoch: l.epoch, Blob: l.delta.blob})
	}
	return nil
}

// samples is how many samples the trained chunks have.
func (l *lease) samples() (n int64) {
	for _, t := range l.trained {
		n += int64(run.ChunkSamples(l.job.Spec, l.job.Data, t.Chunk))
	}
	return n
}

func (l *lease) begin(op operation, now time.Duration, e Effect) Effect {
	domain.Assert(l.op == opNone, "a slot does one thing at a time")
	l.op, l.opAt = op, now
	return e
}
