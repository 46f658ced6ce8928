package plan

import (
	"cmp"
	"fmt"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// overdueFactor is how many times longer than expected a chunk takes before its slot is thought to hang. Less would copy
// from machines that are merely warm; a lease that shows no progress is not taken away before L.
const overdueFactor = 3

// speculate gives slots that have nothing left, and have contributed, copies of what others still hold: first of slots
// that have fallen silent or hang, since nobody knows whether they come back, then of the one that would finish last, when
// that brings the end of the round forward by more than a chunk. The last chunks are copied first: their holder reaches
// them last, and whatever it contributes before stays whole.
func (b *board) speculate() {
	if len(b.pool) > 0 {
		return
	}
	idle := b.spare()
	for i, t := range idle {
		if v := b.absent(t); v != nil {
			b.copyAll(v, t, len(idle)-i)
		} else if v := b.laggard(t); v != nil {
			b.copySlow(v, t)
		}
	}
}

// spare lists the slots that nobody needs, the fastest first. One is left for an evaluation that waits.
func (b *board) spare() []*worker {
	var idle []*worker
	for i := range b.workers {
		w := &b.workers[i]
		if b.able(w) && w.empty() && !b.near(b.lead(w)) {
			idle = append(idle, w)
		}
	}
	slices.SortStableFunc(idle, func(x, y *worker) int { return cmp.Compare(y.speed, x.speed) })
	if b.r.Evaluation != nil && !b.holds(run.UnitEvaluate) && len(idle) > 0 {
		idle = idle[1:]
	}
	return idle
}

// absent is the first slot that is silent or hangs and has chunks to copy, nil when there is none.
func (b *board) absent(t *worker) *worker {
	for i := range b.workers {
		if w := &b.workers[i]; w != t && w.train && (w.Suspect || b.hangs(w)) && len(b.uncopied(w)) > 0 {
			return w
		}
	}
	return nil
}

// hangs reports whether the chunk under way takes far longer than w's speed says, by its machine's own word: one that is
// not heard for a moment, as after a restart of the hub, has not shown that it hangs. Nobody is thought to hang sooner than
// he would be thought silent: a chunk of milliseconds is late for no reason at all.
func (b *board) hangs(w *worker) bool {
	return w.Usable && w.Speed > 0 && len(w.claimed) > 0 && w.Shown > overdueFactor*float64(b.size.of(w.claimed[0]))/w.Speed+b.silence
}

// laggard is the slot with claims that it has not begun which would finish last, nil when there is none.
func (b *board) laggard(t *worker) *worker {
	var v *worker
	last := 0.0
	for i := range b.workers {
		w := &b.workers[i]
		if w == t || !b.known || !w.train || !w.Usable || len(w.claimed) < 2 {
			continue
		}
		if f := b.finish(w, 0, 0); v == nil || f > last {
			v, last = w, f
		}
	}
	return v
}

// uncopied lists what w holds and what has no copy yet, nor by this plan.
func (b *board) uncopied(w *worker) []domain.ChunkID {
	held := b.r.Copyable(w.ID)
	return held[:max(len(held)-w.copied, 0)]
}

// copyAll shares the chunks of an absent slot between those who have nothing to do.
func (b *board) copyAll(v, t *worker, sharers int) {
	held := b.uncopied(v)
	k := b.fits(t, min((len(held)+sharers-1)/sharers, b.room()))
	why := "is silent"
	if !v.Suspect {
		why = fmt.Sprintf("has worked %s s on a chunk of %s s", domain.Figure(v.Shown), domain.Figure(float64(b.size.of(v.claimed[0]))/v.Speed))
	}
	if k > 0 {
		b.copy(v, t, held[len(held)-k:], 0, fmt.Sprintf("%s %s and holds %s", v.ID, why, count(len(held))))
	}
}

// copySlow copies so many of v's last claims that both would finish as early as possible. Their copies must be counted
// before v would begin them: what it has begun it finishes, and a chunk trained twice is time lost for it.
func (b *board) copySlow(v, t *worker) {
	held := b.uncopied(v)
	before := b.finish(v, 0, 0)
	best, gain := 0, b.price(t)
	for k := 1; k <= min(len(v.claimed)-1, len(held), b.room()); k++ {
		if held[len(held)-k] != v.claimed[len(v.claimed)-k] {
			break // its last claims have copies
		}
		tail := b.size.sum(held[len(held)-k:])
		done := b.finish(t, tail, k)
		if done+b.trip > v.lag()-tail/v.speed {
			break
		}
		if after := max(b.finish(v, -tail, -k), done); before-after > gain {
			best, gain = k, before-after
		}
	}
	if best = b.fits(t, best); best > 0 {
		chunks := held[len(held)-best:]
		b.copy(v, t, chunks, gain, fmt.Sprintf("%s would finish its %s in %s s, %s these in %s s", v.ID, count(len(v.claimed)), domain.Figure(before), t.ID,
			domain.Figure(b.finish(t, b.size.sum(chunks), best))))
	}
}

// room is how many chunks a contribution may hold.
func (b *board) room() int {
	if m := b.r.Spec.MaxChunksPerContribution; m > 0 {
		return m
	}
	return run.MaxRoundChunks
}

// fits is how many of k chunks t can train and send before the round's deadline.
func (b *board) fits(t *worker, k int) int {
	d := b.r.Open.Deadline
	for b.known && d > 0 && k > 0 && float64(k)*b.chunk()/t.speed > d-b.lead(t)-b.age {
		k--
	}
	return k
}

// copy proposes the copies and draws them.
func (b *board) copy(v, t *worker, chunks []domain.ChunkID, gain float64, reason string) {
	k := len(chunks)
	b.grant(t, "to train copies of "+count(k)+" of "+string(v.ID))
	b.do(run.Copy{Slot: t.ID, From: v.ID, Count: k, Gain: gain, Reason: reason})
	v.copied += k
	t.sealed, t.claimed, t.pending = true, slices.Clone(chunks), b.size.sum(chunks)
}
