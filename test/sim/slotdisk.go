package sim

import (
	"maps"
	"slices"

	"tensorturn/agent"
	"tensorturn/agent/cache"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// How often what a killed process has left is not all there.
const (
	tornNote     = 0.1 // its newest note was not written
	lostSnapshot = 0.1 // its newest snapshot is not the one that the note speaks of
)

// slotDisk is what a slot keeps on disk: it outlives the agent process, as files do.
type slotDisk struct {
	snaps map[int]snapshot
	lines []cache.Line
	noted domain.Epoch
}

type snapshot struct {
	weights weights
	chunks  []domain.ChunkID
}

func (d *slotDisk) clear() { d.snaps, d.lines = nil, nil }

// keep saves the boundary's snapshot and notes what it holds.
func (s *slotBox) keep(e agent.Train) {
	d := s.disk
	if d.snaps == nil {
		d.snaps = map[int]snapshot{}
	}
	d.snaps[e.Boundary] = snapshot{s.weights, s.chunks}
	delete(d.snaps, e.Boundary-agent.KeptBoundaries)
	d.noted = e.Epoch
	if e.Boundary == 1 {
		d.lines = nil
	}
	d.lines = append(d.lines, cache.Line{Run: s.run, Epoch: e.Epoch, Round: s.round, Number: e.Number, Boundary: e.Boundary, Chunk: &e.Chunk,
		Steps: run.ChunkSteps(s.spec, s.data, e.Chunk), Seconds: 1, Loss: 1})
}

// rename notes that what is kept goes on under another lease.
func (d *slotDisk) rename(l cache.Line) {
	if l.Epoch == d.noted {
		return
	}
	d.noted = l.Epoch
	d.lines = append(d.lines, l)
}

// find tells a new process what the one before has left of a slot.
func (m *machineBox) find(core *agent.Core, slot int) {
	d := m.disks[slot]
	d.noted = 0
	if n := len(d.lines); n > 0 && m.w.faulty() && m.luck.chance(tornNote) {
		d.lines = d.lines[:n-1]
	}
	w := cache.WorkOf(d.lines)
	held := slices.DeleteFunc(slices.Sorted(maps.Keys(d.snaps)), func(b int) bool { return b > len(w.Lines) })
	if len(held) == 0 {
		return
	}
	if m.w.faulty() && m.luck.chance(lostSnapshot) {
		delete(d.snaps, held[len(held)-1]) // its bytes are others: that shows when it is read
	}
	m.say("slot %d: finds %d chunks of lease %d, snapshots %v", slot, len(w.Lines), w.Epoch, held)
	core.Found(slot, agent.FoundWork(w, held))
	m.w.left[domain.Slot(m.opt.ID, slot)] = w.Epoch
}
