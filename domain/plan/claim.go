package plan

import (
	"fmt"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// minAhead is the least number of untrained chunks a slot has claimed: the one under way and the next, so that it never
// waits for a reply between two chunks.
const minAhead = 2

// claim moves chunks from the heads of shards into leases, where nobody can steal them: enough that a reconnect starves
// nobody, and so few that the end of the round stays even.
func (b *board) claim() {
	reach := b.predicted()
	for i := range b.workers {
		w := &b.workers[i]
		if !w.Usable || !w.train || w.asked || w.sealed || len(w.shard) == 0 || b.near(b.lead(w)) {
			continue
		}
		if len(w.claimed) == 0 && b.giveUp(w) {
			continue
		}
		n := 0
		for n < len(w.shard) && b.mayClaim(w, n, reach) {
			n++
		}
		if n == 0 {
			continue
		}
		w.claimed = append(w.claimed[:len(w.claimed):len(w.claimed)], w.shard[:n]...)
		w.shard = w.shard[n:]
		w.queue, w.pending = b.size.sum(w.shard), b.size.sum(w.claimed)
		b.do(run.Claim{Slot: w.ID, Count: n})
	}
}

// predicted is the time until all that is untrained is trained, when everybody works to the end.
func (b *board) predicted() float64 {
	left, speed := b.size.sum(b.pool), 0.0
	for i := range b.workers {
		w := &b.workers[i]
		left += w.queue + w.lag()*w.speed
		if w.Usable && w.train {
			speed += w.speed
		}
	}
	if speed == 0 {
		return 0
	}
	return left / speed
}

// mayClaim reports whether w may claim one chunk more than the n it is being given.
func (b *board) mayClaim(w *worker, n int, close float64) bool {
	have := len(w.claimed) + n
	if m := b.r.Spec.MaxChunksPerContribution; m > 0 && w.trained+have >= m {
		return false
	}
	if b.known && w.trained+have > 0 && b.misses(w, n+1) {
		return false
	}
	switch {
	case have == 0:
		return true
	case w.Speed == 0:
		return have < minAhead
	}
	more := b.size.sum(w.shard[:n+1])
	lag := w.lag()
	if lag+more/w.speed > close+b.price(w) {
		return false // others may finish it sooner: it stays where they can take it
	}
	held := lag + (more-float64(b.size.of(w.shard[n])))/w.speed
	return have < minAhead || held < max(min(b.ahead, close/2), b.trip)
}

// misses reports whether w could not train and send n more chunks before the round's deadline.
func (b *board) misses(w *worker, n int) bool {
	d := b.r.Open.Deadline
	return d > 0 && w.lag()+b.size.sum(w.shard[:n])/w.speed > d-b.lead(w)-b.age
}

// giveUp returns w's shard when the others would be done with everything, these chunks too, before w had trained one.
// It keeps the end of a round from waiting for the slowest slot's last chunk.
func (b *board) giveUp(w *worker) bool {
	if !b.known || b.probing() && w.trained == 0 && b.r.Open.Numbers[w.ID] == 0 {
		return false
	}
	n := len(w.shard)
	own := b.finish(w, float64(b.size.of(w.shard[0]))-w.queue, 1-n) // with one chunk alone
	quota := b.fill(n, func(o *worker) bool { return o == w || o.free })
	if quota == nil {
		return false
	}
	others := 0.0
	for i := range b.workers {
		if o := &b.workers[i]; o != w && o.train {
			others = max(others, b.finish(o, float64(quota[i])*b.chunk(), quota[i]))
		}
	}
	if own <= others+b.price(w) {
		return false
	}
	b.do(run.ReturnShard{Slot: w.ID, Reason: fmt.Sprintf("the others are done with all, its %s too, in %s s, this slot with one in %s s", count(n), domain.Figure(others), domain.Figure(own))})
	b.pool = append(b.pool[:len(b.pool):len(b.pool)], w.shard...)
	w.shard, w.queue = nil, 0
	return true
}
