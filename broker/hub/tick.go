package hub

import (
	"slices"
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// tick lets time pass: machines that fall silent, leases without progress. Deadlines of rounds are the planner's.
func (b *batch) tick(t Tick) {
	b.beginOwn(hubActor, "tick", "tick", uint64Text(b.seq))
	b.silence(t.Full)
	for _, id := range b.c.fold.order {
		b.endLeases(id) // what an earlier append left half done
	}
	b.expireIdle(t.Full)
	b.c.mem.prune(b.c.fold)
}

// inGrace reports whether too little time has passed since the hub began to listen to judge anybody's silence.
func (c *Core) inGrace(now time.Time) bool { return now.Sub(c.mem.since) < c.cfg.Timing.Grace }

// silence turns missing contact into facts: suspect after L/8, or L/24 behind the end of its link, lost after L. Within the grace only machines that have
// spoken to this process can fall silent. While the hub's store is full nobody's clock runs: what a machine says may not be taken
// then, and that is not its silence.
func (b *batch) silence(full bool) {
	c := b.c
	if full {
		for _, k := range c.mem.contacts {
			k.last, k.closed = b.now, time.Time{}
		}
		return
	}
	grace := c.inGrace(b.now)
	for _, id := range slices.Clone(c.fold.order) {
		m := c.fold.machines[id]
		if m.Standing != machine.Online && m.Standing != machine.Suspect {
			continue
		}
		if grace && !c.mem.heardThisTime(id) {
			continue // it may be on its way back; nothing new is given to it meanwhile
		}
		silent := b.now.Sub(c.mem.heard(id))
		gone := c.mem.away(id, b.now) >= c.cfg.Timing.Sync
		if (gone || silent >= c.cfg.Timing.Suspect) && m.Standing == machine.Online {
			b.refused(b.machine(id, machine.MarkSuspect{Silent: silent.Seconds()}))
		}
		if silent >= c.cfg.Timing.Lost {
			b.refused(b.machine(id, machine.Lose{Silent: silent.Seconds()}))
		}
	}
}

// heard is the last contact, not before the grace began.
func (m *liveness) heard(id domain.MachineID) time.Time {
	if c := m.contacts[id]; c != nil && c.last.After(m.since) {
		return c.last
	}
	return m.since
}

// heardThisTime reports whether the machine has spoken to this process. One that has not may be gone since before the
// start: it keeps what it holds, and gets nothing new.
func (m *liveness) heardThisTime(id domain.MachineID) bool {
	return m.contacts[id] != nil && m.contacts[id].incarnation != ""
}

// expireIdle ends leases whose holder is in contact but shows no progress: a hung trainer holds its chunks for nobody. While the
// hub's store is full nobody's clock runs, since nothing can be turned in.
func (b *batch) expireIdle(full bool) {
	c := b.c
	for _, id := range slices.Clone(c.fold.live) {
		for _, l := range leasesOf(c.fold.runs[id]) {
			limit := c.patience(l, id)
			if limit == 0 || full {
				c.mem.rest(l, id, b.now)
				continue
			}
			if !c.inGrace(b.now) && b.now.Sub(c.mem.movedAt(l, id)) >= limit {
				b.expire(id, l, "no progress")
			}
		}
	}
}

// patience is how long the holder of a lease may show no progress; 0 is for ever: a slot that holds nothing waits for
// its round to close, and one whose delta is being inspected waits for the hub.
func (c *Core) patience(l *run.Lease, id domain.RunID) time.Duration {
	if c.mem.inspect[l.Slot] != nil {
		return 0
	}
	if l.Unit == run.UnitTrain && len(l.Claimed) == 0 && len(l.Trained) == 0 {
		return 0
	}
	if s := c.mem.slots[l.Slot]; s != nil && s.run == id && s.epoch == l.Epoch && s.phase == string(wire.PhasePreparing) {
		return preparingLeases * c.cfg.Timing.Lease
	}
	return c.cfg.Timing.Lease
}

// rest keeps the progress clock of a lease that needs none at now, so that it starts afresh when it needs one.
func (m *liveness) rest(l *run.Lease, id domain.RunID, now time.Time) {
	s := m.slot(l.Slot, now)
	s.lease(id, l.Epoch, now)
	s.moved = now
}
