package plan

import (
	"tensorturn/domain/run"
)

// retreat takes back what must not stay: the queued chunks of slots that are suspect, draining, quarantined or no longer
// there, and of all when the run is paused. A draining slot, and every slot of a paused run, sends what it has trained and
// is let go. A slot that is merely not heard yet, after a restart of the hub, keeps what it has.
func (b *board) retreat() {
	for i := range b.workers {
		w := &b.workers[i]
		if !w.mine || w.Usable && b.r.Paused == "" {
			continue
		}
		if w.Quarantined {
			b.expel(w)
			continue
		}
		if !w.train {
			continue
		}
		if w.Suspect || w.Draining || w.index < 0 || b.r.Paused != "" {
			b.recall(w)
		}
		switch {
		case w.asked:
		case w.Draining && !w.empty():
			b.ask(w, w.leaving()+" with "+count(w.trained)+" trained")
		case w.Draining:
			b.let(w, w.gave())
		case b.r.Paused != "" && w.empty():
			b.let(w, "paused")
		case b.r.Paused != "" && len(w.claimed) == 0:
			b.ask(w, reasonPaused+": "+count(w.trained)+" trained")
		}
	}
}

// recall returns w's shard to the pool.
func (b *board) recall(w *worker) {
	if len(w.shard) == 0 {
		return
	}
	reason := reasonPaused
	switch {
	case w.index < 0:
		reason = "the slot is gone"
	case w.Paused != "":
		reason = "the slot is paused"
	case w.Draining:
		reason = reasonDrain
	case w.Suspect:
		reason = "suspect"
	}
	b.do(run.ReturnShard{Slot: w.ID, Reason: reason})
	b.pool = append(b.pool[:len(b.pool):len(b.pool)], w.shard...)
	w.shard, w.queue = nil, 0
}

// expel ends the lease of a quarantined slot; all it holds goes back.
func (b *board) expel(w *worker) {
	b.pool = append(b.pool[:len(b.pool):len(b.pool)], w.shard...)
	b.let(w, "quarantined")
}

func (b *board) let(w *worker, reason string) {
	b.do(run.ReleaseLease{Slot: w.ID, Reason: reason})
	w.train, w.mine = false, false
	w.shard, w.claimed, w.trained, w.queue, w.pending = nil, nil, 0, 0, 0
}

// leaving says why a slot is asked for what it holds.
func (w *worker) leaving() string {
	if w.Paused != "" {
		return reasonPaused + ": the slot leaves (" + w.Paused + ")"
	}
	return reasonDrain + ": the machine leaves"
}

func (w *worker) gave() string {
	if w.Paused != "" {
		return "the slot is paused"
	}
	return "drained"
}
