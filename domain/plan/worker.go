package plan

import (
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// worker is one slot from the view of one run.
type worker struct {
	Slot
	index   int     // in Snapshot.Slots, -1 when the pool does not know the slot any more
	free    bool    // may be granted a lease of this run
	mine    bool    // holds a lease of this run
	train   bool    // holds a train lease of the open round
	speed   float64 // samples per second to reckon with: measured, or from benchmarks, or the mean, or less when a chunk is overdue
	power   float64 // of what this run's trainer uses, 0 when unknown
	shard   []domain.ChunkID
	claimed []domain.ChunkID // not trained yet; the first is under way
	trained int              // chunks in its local weights
	asked   bool             // its contribution is requested or being cut
	sealed  bool             // its contribution takes no further chunk: it holds copies, or chunks that others have counted
	copied  int              // of its chunks copied by this plan
	queue   float64          // samples in shard
	pending float64          // samples in claimed
	member  *run.Member      // of an ensemble, that it trains
	left    float64          // samples the member has still to see
}

// pace is what the pool's slots are known to do, summed in their order.
type pace struct {
	sum          float64 // of the known speeds
	n            int     // of them
	rated, power float64 // speed and power of those that have both
	all          float64 // power of those that have one
	benched      int     // of them
}

// paceOf sums over every slot of the pool, whoever it works for.
func paceOf(slots []Slot, onCPU bool) *pace {
	p := &pace{}
	for i := range slots {
		speed, power := run.KnownSpeed(slots[i].Speed), slots[i].Power.of(onCPU)
		if power > 0 {
			p.all, p.benched = p.all+power, p.benched+1
		}
		if speed > 0 {
			p.sum, p.n = p.sum+speed, p.n+1
			if power > 0 {
				p.rated, p.power = p.rated+speed, p.power+power
			}
		}
	}
	return p
}

// of is the power that a trainer has which knows a GPU, or none.
func (p Power) of(onCPU bool) float64 {
	if onCPU {
		return p.CPU
	}
	return p.Own
}

// reckon settles the speeds to plan with. An unknown one follows from the slot's benchmark and from what the known ones make of theirs,
// else it is the mean of the known. A chunk that takes longer than the speed says bounds the speed from above: a hanging slot gets
// slower by the second.
func (b *board) reckon(p *pace) {
	b.known, b.rated = p.n > 0, p.benched > 1
	for i := range b.workers {
		w := &b.workers[i]
		w.power = w.Power.of(onCPU(b.r))
		switch {
		case w.Speed > 0:
			w.speed = w.Speed
		case b.known && w.power > 0 && p.power > 0:
			w.speed = min(max(w.power*(p.rated/p.power), run.MinSpeed), run.MaxSpeed)
		case b.known:
			w.speed = p.sum / float64(p.n)
		default:
			w.speed, w.Busy, w.Shown = 1, 0, 0 // seconds mean nothing where times are in samples
			if b.rated && w.power > 0 {
				w.speed = max(w.power*(float64(p.benched)/p.all), run.MinSpeed)
			}
			continue
		}
		if w.Busy > 0 && len(w.claimed) > 0 {
			w.speed = min(w.speed, float64(b.size.of(w.claimed[0]))/w.Busy)
		}
	}
}

// onCPU reports whether the run's trainer knows no GPU.
func onCPU(r *run.State) bool { return r.Spec.Trainer != run.Process }

// able reports whether w may be given chunks: it can begin them without a contribution in between.
func (b *board) able(w *worker) bool {
	return w.Usable && (w.train && !w.asked && !w.sealed || w.free) && !b.benched(w)
}

// benched keeps a slot whose next task error would end the run from getting work while another slot has failed less:
// one broken machine must not end what the others can finish.
func (b *board) benched(w *worker) bool {
	fails := b.r.TaskFails[w.ID]
	if fails < run.MaxTaskFailures-1 || w.train {
		return false
	}
	return slices.ContainsFunc(b.workers, func(o worker) bool {
		return o.Usable && (o.free || o.mine) && b.r.TaskFails[o.ID] < fails
	})
}

// lag is the time until w has trained what it has claimed.
func (w *worker) lag() float64 {
	if w.pending == 0 {
		return 0
	}
	return max(0, w.pending/w.speed-w.Busy)
}

// finish is the time until w has trained all it has and sent it, extra samples in extraChunks chunks included.
func (b *board) finish(w *worker, extra float64, extraChunks int) float64 {
	chunks := w.trained + len(w.claimed) + len(w.shard) + extraChunks
	if chunks == 0 {
		return 0
	}
	t := w.lag() + (w.queue+extra)/w.speed
	if !b.known {
		return t
	}
	sends := 1
	if m := b.r.Spec.MaxChunksPerContribution; m > 0 {
		sends = (chunks + m - 1) / m
	}
	return t + float64(sends)*w.Upload
}

// empty reports whether w holds no chunk.
func (w *worker) empty() bool { return len(w.shard)+len(w.claimed)+w.trained == 0 }
