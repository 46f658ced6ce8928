package agent

import (
	"slices"

	"tensorturn/agent/cache"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// late is what a slot trained under a lease that has ended. Its snapshots stay on disk until the hub adopts it, gives the
// slot other work, or two rounds have passed over it.
type late struct {
	run        domain.RunID
	epoch      domain.Epoch
	round      int
	number     int // of the contribution for which it was trained
	trained    []wire.TrainedChunk
	boundaries []int
}

// Kept is work that an earlier process of this machine has left on its disk.
type Kept struct {
	Run        domain.RunID
	Epoch      domain.Epoch
	Round      int
	Number     int // of the contribution
	Trained    []wire.TrainedChunk
	Boundaries []int // snapshots that are there, ascending
}

// FoundWork is what a slot's notes tell.
func FoundWork(w cache.Work, boundaries []int) Kept {
	k := Kept{Run: w.Run, Epoch: w.Epoch, Round: w.Round, Number: w.Number, Boundaries: boundaries}
	for _, l := range w.Lines[:min(len(w.Lines), wire.MaxSlotChunks)] {
		k.Trained = append(k.Trained, wire.TrainedChunk{Chunk: *l.Chunk, Steps: max(0, l.Steps), Seconds: chunkTime(l.Seconds), Loss: l.Loss})
	}
	return k
}

// Found takes in what an earlier process has left, before the first Step. It is late work like any other: the hub adopts it
// under a new epoch if nobody else has it meanwhile, and the old epoch is never held again.
func (c *Core) Found(slot int, k Kept) {
	domain.Assert(c.contact.counter == 0, "work is found before the first word to the hub")
	if slot < 0 || slot >= len(c.slots) || k.Run == "" || k.Epoch == 0 || len(k.Trained) == 0 || len(k.Boundaries) == 0 {
		return
	}
	s := c.slots[slot]
	s.newest, s.trainerOpen = k.Epoch, true // it is let go as an idle trainer is
	s.late = &late{run: k.Run, epoch: k.Epoch, round: k.Round, number: k.Number, trained: k.Trained, boundaries: newestOf(k.Boundaries)}
}

// newestOf gives the newest KeptBoundaries.
func newestOf(boundaries []int) []int {
	return slices.Clone(boundaries[max(0, len(boundaries)-KeptBoundaries):])
}

// part ends the slot's lease. What it has trained is kept, in case the hub can still use it.
func (c *Core) part(s *slot, out []Effect) []Effect {
	l := s.lease
	s.lease = nil
	keep := l.unit == run.UnitTrain && !l.spoiled && len(l.trained) > 0 && len(l.boundaries) > 0
	if keep {
		s.late = &late{run: l.run, epoch: l.epoch, round: l.round, number: l.number, trained: l.trained, boundaries: l.boundaries}
		c.contact.tell() // the hub may not know of it yet
	}
	return append(out, Abandon{Slot: s.index, Epoch: l.epoch, Keep: keep})
}

// adopt takes the late work into the new lease. If it is gone meanwhile, as many chunks are trained again.
func (s *slot) adopt(l *lease, a *wire.Adopt) {
	w := s.late
	s.late = nil
	if a == nil {
		return
	}
	l.floor = a.Keep
	if w == nil || w.run != l.run || w.epoch != a.Late || a.Keep > len(w.trained) || !slices.Contains(w.boundaries, a.Keep) {
		return
	}
	l.adopted, l.lost = true, true
	l.trained = slices.Clone(w.trained[:a.Keep])
	for _, b := range w.boundaries {
		if b <= a.Keep {
			l.boundaries = append(l.boundaries, b)
		}
	}
}

// prepareAfterAll readies a lease with adopted work for training: it goes on from the newest snapshot, or begins again from the
// base when the adopted chunks have been contributed or their snapshots are gone.
func (l *lease) prepareAfterAll() {
	l.adopted = false
	if len(l.trained) > 0 && l.held(len(l.trained)) {
		l.lost = true // the base is loaded first, then the snapshot
		return
	}
	l.fromBase()
	l.lost = false // what is loaded is the base
}

// outlast drops late work that two rounds have passed over: its base is too old.
func (c *Core) outlast(out []Effect) []Effect {
	for _, s := range c.slots {
		if s.late != nil && c.merged[s.late.run] > s.late.round {
			out = append(out, Abandon{Slot: s.index, Epoch: s.late.epoch})
			s.late = nil
		}
	}
	return out
}

// report gives the late work as the hub hears it.
func (w *late) report() *wire.Late {
	r := &wire.Late{Run: w.run, Epoch: w.epoch, Number: w.number, Boundaries: slices.Clone(w.boundaries)}
	for _, t := range w.trained {
		r.Chunks = append(r.Chunks, t.Chunk)
	}
	return r
}
