package hub

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// sync hears an agent: contact, what its slots hold and have done, and its wish to stop. The reply is made from the
// state after the whole batch.
func (b *batch) sync(i int, in Sync) {
	m, err := b.c.admitted(in)
	if domain.KindOf(err) == domain.KindFenced {
		if ct := b.c.mem.contacts[in.Machine]; ct != nil {
			ct.refuse(in.Request.Incarnation, in.Request.Counter, b.now)
		}
	}
	if err == nil {
		err = b.mayStart(in, m)
	}
	if err != nil {
		b.refuse(i, err)
		b.answers[i].isSync = true
		return
	}
	b.answers[i] = answer{sync: &in}
	b.synced[in.Machine] = true
	if !b.c.mem.hear(in, m.Incarnation, b) {
		return // late or repeated: it is told the desired state and changes nothing
	}
	b.beginOwn(event.Actor("machine:"+string(in.Machine)), string(in.Machine), "sync",
		string(in.Machine), string(in.Request.Incarnation), strconv.FormatUint(in.Request.Counter, 10))
	restarted := m.Incarnation != in.Request.Incarnation
	if err := b.machine(in.Machine, machine.Connect{Incarnation: in.Request.Incarnation, Slots: len(in.Request.Slots)}); err != nil {
		b.refuse(i, err)
		b.answers[i].isSync = true
		return
	}
	if restarted {
		b.endForgotten(in)
	}
	b.c.mem.looked(in)
	b.away(in)
	b.bench(in)
	b.word(in.Machine, machine.TellLabels{Labels: in.Request.Labels})
	b.noteMissing(in.Machine, in.Request.Missing)
	b.c.mem.forgetLate(in.Machine)
	for _, r := range in.Request.Slots {
		b.report(in.Machine, r)
	}
	if in.Request.Stopping {
		b.refused(b.machine(in.Machine, machine.Drain{Reason: "the agent was asked to end", Stopping: true}))
	}
	b.beats = append(b.beats, beatOf(in, b.now))
}

// away takes in which slots cannot or shall not work, as their agent says.
func (b *batch) away(in Sync) {
	var c machine.Away
	for _, r := range in.Request.Slots {
		if r.Away != nil {
			c.Slots = append(c.Slots, machine.SlotPause{Slot: r.Index, Cause: r.Away.Cause, Reason: told(r.Away.Reason)})
		}
	}
	b.word(in.Machine, c)
}

// admitted finds the machine of a sync, or says why it is not served.
func (c *Core) admitted(in Sync) (*machine.State, error) {
	const op = "sync"
	m, r := c.fold.machines[in.Machine], in.Request
	switch {
	case m == nil:
		return nil, domain.Denied(op, fmt.Sprintf("machine %s is not enrolled", in.Machine), "join it with a token: tensorturn token create")
	case m.Standing == machine.Revoked:
		return nil, domain.Denied(op, fmt.Sprintf("machine %s is revoked", in.Machine), "join it again with a new token")
	case r.Version != wire.Version:
		return nil, domain.Invalid(op, fmt.Sprintf("the agent speaks protocol version %d, this hub speaks %d", r.Version, wire.Version),
			"install the same release of tensorturn on hub and agent")
	case r.Incarnation == "":
		return nil, domain.Invalid(op, "the request names no incarnation", "update the agent")
	case len(r.Slots) < 1 || len(r.Slots) > domain.MaxSlotsPerMachine:
		return nil, domain.Invalid(op, fmt.Sprintf("the request has %d slots, a machine has 1 to %d", len(r.Slots), domain.MaxSlotsPerMachine), "")
	case r.Incarnation != m.Incarnation && slices.Contains(c.fold.retired[in.Machine], r.Incarnation) && !c.lives(in, m):
		return nil, domain.Fenced(op, "another agent process has taken this machine's place: two agents with one identity, or a late message of an ended one")
	case r.Incarnation == m.Incarnation && m.Standing != machine.Enrolled && len(r.Slots) != m.Slots:
		return nil, domain.Invalid(op, fmt.Sprintf("the agent has %d slots, it had %d when it started", len(r.Slots), m.Slots), "restart the agent")
	}
	for i, s := range r.Slots {
		if s.Index != i {
			return nil, domain.Invalid(op, fmt.Sprintf("slot %d is listed at position %d", s.Index, i), "")
		}
	}
	return m, nil
}

// lives reports whether an incarnation that another one has followed is the one that runs after all: it goes on counting
// and the other has been silent for L/8. The other was then a late first message of a process that had ended before, and
// without this the machine would be shut out until somebody starts its agent anew.
func (c *Core) lives(in Sync, m *machine.State) bool {
	ct := c.mem.contacts[in.Machine]
	late := ct != nil && ct.former == in.Request.Incarnation && in.Request.Counter <= ct.formerCounter
	return !late && m.Standing != machine.Drained && c.now.Sub(c.mem.heard(in.Machine)) >= c.cfg.Timing.Suspect
}

// hear notes contact and reports whether the request is news: a counter that is not newer within its incarnation is
// a repetition or came late, and proves nothing about the present.
func (m *liveness) hear(in Sync, known domain.Incarnation, b *batch) bool {
	r := in.Request
	c := m.contacts[in.Machine]
	if c == nil {
		c = &contact{}
		m.contacts[in.Machine] = c
	}
	if r.Incarnation == known && r.Incarnation == c.incarnation && r.Counter <= c.counter {
		return false
	}
	if c.incarnation != "" && c.incarnation != r.Incarnation {
		c.former, c.formerCounter = c.incarnation, c.counter
	}
	if c.rival.incarnation == r.Incarnation {
		c.rival = rival{} // it was the one that runs after all
	}
	c.last, c.closed, c.incarnation, c.counter = b.now, time.Time{}, r.Incarnation, r.Counter
	return true
}

// endForgotten ends at once every lease that a new agent process does not hold: waiting for its time to live would
// only leave its chunks idle.
func (b *batch) endForgotten(in Sync) {
	for _, id := range slices.Clone(b.c.fold.live) {
		for _, l := range leasesOf(b.c.fold.runs[id]) {
			if l.Slot.Machine() != in.Machine {
				continue
			}
			i := l.Slot.Index()
			if i < len(in.Request.Slots) && in.Request.Slots[i].Run == id && in.Request.Slots[i].Epoch == l.Epoch {
				continue
			}
			b.expire(id, l, "agent restarted")
		}
	}
}

// expire ends a lease and records for how long its holder had shown nothing.
func (b *batch) expire(id domain.RunID, l *run.Lease, reason string) {
	silent := b.now.Sub(b.c.mem.movedAt(l, id)).Seconds()
	_, err := b.run(id, run.ExpireLease{Slot: l.Slot, Reason: domain.Clip(reason, domain.MaxReasonLength), Silent: max(0, silent)})
	b.refused(err)
	delete(b.c.mem.inspect, l.Slot)
}

// refused counts a command that the aggregate refused although the hub itself made it.
func (b *batch) refused(err error) {
	if err != nil {
		b.c.stats.ReportRefused++
	}
}

// endLeases ends every lease of a machine that may not hold any.
func (b *batch) endLeases(id domain.MachineID) {
	m := b.c.fold.machines[id]
	var reason string
	switch {
	case m.Standing == machine.Revoked:
		reason = "machine revoked"
	case m.Standing == machine.Lost:
		reason = "no contact"
	case m.Standing == machine.Drained:
		reason = "machine drained"
	case m.Quarantined != "":
		reason = "machine quarantined: " + m.Quarantined
	default:
		return
	}
	for i := range m.Slots {
		if s, l := b.c.fold.lease(domain.Slot(id, i)); l != nil {
			b.expire(s.ID, l, reason)
		}
	}
}
