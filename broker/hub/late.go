package hub

import (
	"fmt"
	"slices"
	"strings"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// lateWork is what a slot says that it trained under a lease that has ended. It waits here while no round is open that
// could take it; it is lost with the process, and said again with the next sync.
type lateWork struct {
	run  domain.RunID
	work run.AdoptDelta
}

// late hears of work that has outlived its lease, and adopts it or keeps it for the next round. It reports whether there
// is nothing more to say about it now: what can neither be adopted nor wait is lost work.
func (b *batch) late(slot domain.SlotID, r wire.SlotReport) bool {
	w, ok := lateOf(slot, r)
	if !ok {
		return false
	}
	if b.adopt(w) {
		return true
	}
	s := b.c.fold.runs[w.run]
	if s == nil || s.Phase.Ended() || !s.Late[slot].Is(w.work) {
		return false
	}
	b.c.mem.late[slot] = w
	return s.Open == nil || s.Open.Closed || s.Paused != ""
}

// lateOf reads the work from a report: of a lease that the agent still believes in, or of one that it knows to have ended.
func lateOf(slot domain.SlotID, r wire.SlotReport) (lateWork, bool) {
	if l := r.Late; l != nil {
		return lateWork{l.Run, run.AdoptDelta{Slot: slot, Late: l.Epoch, Number: l.Number, Chunks: l.Chunks, Boundaries: l.Boundaries, Resume: true}}, true
	}
	if len(r.Trained) == 0 || len(r.Boundaries) == 0 {
		return lateWork{}, false
	}
	chunks := make([]domain.ChunkID, len(r.Trained))
	for i, t := range r.Trained {
		chunks[i] = t.Chunk
	}
	return lateWork{r.Run, run.AdoptDelta{Slot: slot, Late: r.Epoch, Number: r.Number, Chunks: chunks, Boundaries: r.Boundaries,
		Resume: r.Error == ""}}, true // a trainer that fails again and again shall show progress: it contributes first
}

// adopt takes late work into a lease of its own, if it can be. A lease that was granted before the work was heard of, and
// under which nothing has been trained, gives way.
func (b *batch) adopt(w lateWork) bool {
	s := b.c.fold.runs[w.run]
	if s == nil || !b.c.mayWork(w.work.Slot) || !s.Adoptable(w.work) {
		return false
	}
	held, l := b.c.fold.lease(w.work.Slot)
	if l != nil && (held != s || !begins(l)) {
		return false
	}
	var cmds []run.Command
	if l != nil {
		cmds = append(cmds, run.ReleaseLease{Slot: l.Slot, Reason: "earlier work comes first"})
	}
	cmds = append(cmds, run.GrantLease{Slot: w.work.Slot, Unit: run.UnitTrain, Round: s.Open.Number,
		Reason: fmt.Sprintf("to turn in what it trained under lease %d", w.work.Late)}, w.work)
	for _, c := range cmds {
		if _, err := b.run(w.run, c); err != nil {
			b.refused(err)
			return false
		}
	}
	delete(b.c.mem.late, w.work.Slot)
	return true
}

// begins reports whether nothing has been done under the lease.
func begins(l *run.Lease) bool {
	return l.Unit == run.UnitTrain && len(l.Trained) == 0 && l.Contribute == "" && l.Cut == nil
}

// adoptAll tries what waits: a round may have opened for it.
func (b *batch) adoptAll() {
	slots := make([]domain.SlotID, 0, len(b.c.mem.late))
	for slot := range b.c.mem.late {
		slots = append(slots, slot)
	}
	slices.SortFunc(slots, func(x, y domain.SlotID) int { return strings.Compare(string(x), string(y)) })
	for _, slot := range slots {
		if s := b.c.fold.runs[b.c.mem.late[slot].run]; s != nil && s.Late[slot] != nil {
			b.adopt(b.c.mem.late[slot])
		}
	}
}

// mayWork reports whether the slot's machine may be given work.
func (c *Core) mayWork(slot domain.SlotID) bool {
	m := c.fold.machines[slot.Machine()]
	return m != nil && m.SlotUsable(slot.Index()) && c.mem.heardThisTime(m.ID) && slot.Index() < m.Slots
}

// forgetLate drops what the machine's slots said before: a report says everything anew.
func (m *liveness) forgetLate(id domain.MachineID) {
	for slot := range m.late {
		if slot.Machine() == id {
			delete(m.late, slot)
		}
	}
}
