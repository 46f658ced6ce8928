package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// steal lets every slot that is about to have nothing take from the tail of the shard whose owner would finish last.
// The fastest thief chooses first.
func (b *board) steal() {
	var thieves []*worker
	for i := range b.workers {
		if w := &b.workers[i]; b.thief(w) {
			thieves = append(thieves, w)
		}
	}
	slices.SortStableFunc(thieves, func(x, y *worker) int { return cmp.Compare(y.speed, x.speed) })
	for _, t := range thieves {
		v := b.victim(t)
		if v == nil {
			return
		}
		if k, gain := b.loot(t, v); k > 0 {
			b.move(v, t, k, gain)
		}
	}
}

// thief reports whether w is about to have nothing: no shard, and at most one claimed chunk or one sync of work. One that
// has its fill of chunks contributes first.
func (b *board) thief(w *worker) bool {
	if !b.able(w) || len(w.shard) > 0 {
		return false
	}
	if m := b.r.Spec.MaxChunksPerContribution; m > 0 && w.trained+len(w.claimed) >= m {
		return false
	}
	return len(w.claimed) <= 1 || b.known && w.lag() <= b.sync
}

// victim is the slot with queued chunks that would finish last, the first of equals; nil when no shard is left.
func (b *board) victim(thief *worker) *worker {
	var v *worker
	last := -1.0
	for i := range b.workers {
		w := &b.workers[i]
		if w == thief || len(w.shard) == 0 {
			continue
		}
		if f := b.finish(w, 0, 0); f > last {
			v, last = w, f
		}
	}
	return v
}

// loot is how many chunks of v's shard bring the later of the two finishes forward the most, and by how many seconds; 0
// when that is no more than what a steal costs, one sync. The thief's further upload is part of its finish.
func (b *board) loot(t, v *worker) (chunks int, gain float64) {
	n := len(v.shard)
	per := v.queue / float64(n)
	before := b.finish(v, 0, 0)
	after := func(k int) float64 {
		tail := b.size.sum(v.shard[n-k:])
		return max(b.finish(v, -tail, -k), b.finish(t, tail, k))
	}
	// Both finishes are nearly straight lines in k: they meet at even.
	fixed := b.finish(t, per, 1) - per/t.speed
	even := (before - fixed) / (per/v.speed + per/t.speed)
	k := min(max(int(math.Floor(even)), 1), n)
	if up := min(k+1, n); after(up) < after(k) {
		k = up
	}
	gain = before - after(k)
	if gain <= b.price(t) {
		return 0, 0
	}
	return k, gain
}

// price is what a rearrangement in favour of w must gain, in seconds: one chunk of w, at least a round trip, at most one
// sync. It is in samples, half a chunk, while no speed is known: so much that the two are at least one whole chunk apart.
func (b *board) price(w *worker) float64 {
	if !b.known {
		return b.chunk() / 2
	}
	return min(max(b.chunk()/w.speed, b.trip), b.sync)
}

// move proposes the steal and draws it.
func (b *board) move(v, t *worker, k int, gain float64) {
	from, to := b.finish(v, 0, 0), b.finish(t, 0, 0)
	n := len(v.shard)
	loot := v.shard[n-k:]
	v.shard = v.shard[:n-k]
	v.queue = b.size.sum(v.shard)
	b.take(t, loot)
	reason := fmt.Sprintf("%d of %s: %s would finish in %s s and %s in %s s, now %s s and %s s", k, count(n), v.ID, domain.Figure(from), t.ID, domain.Figure(to),
		domain.Figure(b.finish(v, 0, 0)), domain.Figure(b.finish(t, 0, 0)))
	if !b.known {
		gain, reason = 0, fmt.Sprintf("%d of the %s queued for %s, no speed known", k, count(n), v.ID)
	}
	b.grant(t, "to take "+count(k)+" from "+string(v.ID))
	b.do(run.Steal{From: v.ID, To: t.ID, Count: k, Gain: gain, Reason: reason})
}
