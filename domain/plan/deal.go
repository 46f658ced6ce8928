package plan

import (
	"container/heap"
	"fmt"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// ProbeEvery is how often a round gives every slot at least one chunk, whatever its upload is reckoned to cost, so that
// one bad measurement does not idle a slot for ever.
const ProbeEvery = 8

// deal gives the pool's chunks away in consecutive runs, so that all who work would finish at the same time: at the
// start of a round that is in proportion to speed, later chunks go to the slot that would finish them first.
func (b *board) deal() {
	n := len(b.pool)
	if n == 0 {
		return
	}
	start := n == len(b.r.Open.Chunks)
	quota := b.fill(n, nil)
	if quota == nil {
		return // nobody can take them now
	}
	if start && (b.probing() || !b.known && b.rated) { // benchmarks shall not keep a slot from being measured
		b.probe(quota)
	}
	total := 0.0
	for i, q := range quota {
		if q > 0 {
			total += b.workers[i].speed
		}
	}
	for i, q := range quota {
		if q == 0 {
			continue
		}
		w := &b.workers[i]
		chunks := b.pool[:q]
		b.pool = b.pool[q:]
		b.grant(w, "to train "+count(q)+" from the pool")
		b.take(w, chunks)
		speed := w.speed
		if !b.known {
			speed = 0
		}
		b.do(run.AssignShard{Slot: w.ID, Chunks: chunks, Speed: speed, Reason: b.dealReason(w, q, n, total, start)})
	}
}

func (b *board) dealReason(w *worker, q, n int, total float64, start bool) string {
	switch {
	case !b.known && b.rated && w.power > 0:
		return fmt.Sprintf("%d of %s: its share by benchmark, %s GFLOP/s, no speed known", q, count(n), domain.Figure(w.power/1e9))
	case !b.known && b.rated:
		return fmt.Sprintf("%d of %s: a mean share, never benchmarked, no speed known", q, count(n))
	case !b.known:
		return fmt.Sprintf("%d of %s: an equal share, no speed known", q, count(n))
	case start:
		if w.Upload > 0 {
			return fmt.Sprintf("%d of %s: at %s samples/s, its upload of %s s included, it would finish in %s s", q, count(n), domain.Figure(w.speed), domain.Figure(w.Upload), domain.Figure(b.finish(w, 0, 0)))
		}
		return fmt.Sprintf("%d of %s for %s of %s samples/s", q, count(n), domain.Figure(w.speed), domain.Figure(total))
	}
	return fmt.Sprintf("%d of %s from the pool: it would finish first, in %s s", q, count(n), domain.Figure(b.finish(w, 0, 0)))
}

// fill says how many of n chunks each worker gets when each chunk goes to the one that would be done with it first. It
// returns nil when nobody is able. Workers for which skip reports true get none.
func (b *board) fill(n int, skip func(*worker) bool) []int {
	h := &levels{}
	for i := range b.workers {
		w := &b.workers[i]
		if b.able(w) && (skip == nil || !skip(w)) {
			h.l = append(h.l, level{i: i, t: b.finish(w, b.chunk(), 1)})
		}
	}
	if len(h.l) == 0 {
		return nil
	}
	quota := make([]int, len(b.workers))
	heap.Init(h)
	for range n {
		top := &h.l[0]
		quota[top.i]++
		q := quota[top.i] + 1
		top.t = b.finish(&b.workers[top.i], float64(q)*b.chunk(), q)
		heap.Fix(h, 0)
	}
	return quota
}

// probing reports whether every slot shall train at least once in this round.
func (b *board) probing() bool { return b.r.Open.Number%ProbeEvery == 0 }

// probe moves one chunk to each able slot that was dealt none, from the slot with the most.
func (b *board) probe(quota []int) {
	for i := range b.workers {
		if quota[i] > 0 || !b.able(&b.workers[i]) {
			continue
		}
		most := 0
		for j := range quota {
			if quota[j] > quota[most] {
				most = j
			}
		}
		if quota[most] < 2 {
			return
		}
		quota[most]--
		quota[i]++
	}
}

// levels is a heap of workers by when they would finish one more chunk; the first of equals comes first.
type levels struct{ l []level }

type level struct {
	i int // in board.workers
	t float64
}

func (h *levels) Len() int { return len(h.l) }
func (h *levels) Less(a, b int) bool {
	return h.l[a].t < h.l[b].t || h.l[a].t == h.l[b].t && h.l[a].i < h.l[b].i
}
func (h *levels) Swap(a, b int) { h.l[a], h.l[b] = h.l[b], h.l[a] }
func (h *levels) Push(x any)    { h.l = append(h.l, x.(level)) }
func (h *levels) Pop() any      { x := h.l[len(h.l)-1]; h.l = h.l[:len(h.l)-1]; return x }
