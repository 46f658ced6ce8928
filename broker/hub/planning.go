package hub

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/domain/match"
	"tensorturn/domain/plan"
	"tensorturn/domain/run"
)

func uint64Text(n uint64) string { return strconv.FormatUint(n, 10) }

// maxPauseReason keeps room for the rest of a reason that names one.
const maxPauseReason = 80

// settle lets the planner act on what the batch has changed until it has nothing to propose, then lets machines go whose
// agents were told to stop and that hold nothing.
func (b *batch) settle() {
	b.beginOwn(hubActor, "plan", "plan", uint64Text(b.seq), uint64Text(b.c.head()))
	passes := 0
	for ; passes < maxPlanPasses; passes++ {
		before := b.seq
		b.adoptAll()
		for _, a := range plan.Next(b.c.snapshot(b.now)) {
			if _, err := b.run(a.Run, a.Command); err != nil {
				b.c.stats.PlanRefused++
			}
		}
		if b.seq == before {
			break
		}
	}
	if passes == maxPlanPasses {
		b.c.stats.PlanEndless++
	}
	b.noteLeases()
	for _, id := range slices.Clone(b.c.fold.order) {
		m := b.c.fold.machines[id]
		if m.Stopping && (m.Standing == machine.Online || m.Standing == machine.Suspect) && !b.c.fold.holds(id) {
			b.refused(b.machine(id, machine.MarkDrained{}))
		}
	}
}

// noteLeases starts the progress clock of leases granted in this batch.
func (b *batch) noteLeases() {
	for _, e := range b.events {
		if g, ok := e.Data.(*run.LeaseGranted); ok {
			b.c.mem.slot(g.Slot, b.now).lease(domain.RunID(e.Agg), domain.Epoch(e.Seq), b.now)
		}
	}
}

// snapshot is what the planner may look at: the fold, and the part of the memory that decisions may use.
func (c *Core) snapshot(now time.Time) plan.Snapshot {
	s := plan.Snapshot{Timing: c.cfg.Timing, RoundAge: map[domain.RunID]float64{}}
	held := map[domain.SlotID]domain.Epoch{}
	for _, id := range c.fold.live {
		st := c.fold.runs[id]
		for slot, l := range st.Leases {
			held[slot] = l.Epoch
		}
		s.Runs = append(s.Runs, st)
		if age, known := c.ageOf(st, now); known {
			s.RoundAge[id] = age
		}
	}
	for _, id := range c.fold.order {
		m := c.fold.machines[id]
		if m.Standing == machine.Revoked || m.Standing == machine.Enrolled {
			continue
		}
		s.Machines = append(s.Machines, c.matched(m))
		for i := range m.Slots {
			s.Slots = append(s.Slots, c.slotOf(m, domain.Slot(m.ID, i), held, now))
		}
	}
	slices.SortFunc(s.Machines, func(a, b match.Machine) int { return strings.Compare(string(a.ID), string(b.ID)) })
	slices.SortFunc(s.Slots, func(a, b plan.Slot) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return s
}

func (c *Core) slotOf(m *machine.State, id domain.SlotID, held map[domain.SlotID]domain.Epoch, now time.Time) plan.Slot {
	epoch, leased := held[id]
	p := plan.Slot{
		ID: id, Usable: m.SlotUsable(id.Index()) && c.mem.heardThisTime(m.ID), Suspect: m.Standing == machine.Suspect, Draining: m.Draining,
		Quarantined: m.Quarantined != "", Free: !leased,
	}
	p.Away = awayOf(m)
	if pause, paused := m.Pause(id.Index()); paused {
		p.Draining, p.Paused = true, domain.Clip(pause.Reason, maxPauseReason)
	}
	p.Power = plan.Power{Own: m.Power(id.Index(), false), CPU: m.Power(id.Index(), true)}
	if m.Bench != nil {
		p.Link = m.Bench.Up / float64(m.Slots)
	}
	if s := c.mem.slots[id]; s != nil {
		p.Speed, p.Upload = s.speed, s.upload
		if !s.began.IsZero() && leased && s.epoch == epoch {
			p.Busy = max(now.Sub(s.began).Seconds(), 1e-3) // 0 would mean that it trains none
			if k := c.mem.contacts[m.ID]; k != nil {
				p.Shown = max(k.last.Sub(s.began).Seconds(), 0)
			}
		}
		if leased && s.epoch == epoch {
			p.Done = s.done
		}
	}
	return p
}

// awayOf says for people why a machine is not there; empty where flags of the slot say it.
func awayOf(m *machine.State) string {
	switch m.Standing {
	case machine.Lost:
		return "its machine is lost: it has been silent for a lease time"
	case machine.Drained:
		return "its machine has left in good order"
	case machine.Suspect:
		return "its machine is silent"
	}
	return ""
}

// opened is when the run's open round began on this process's clock.
func (m *liveness) opened(id domain.RunID, number int, now time.Time) time.Time {
	r, ok := m.rounds[id]
	if !ok || r.number != number {
		r = roundMemory{number: number, opened: now}
		m.rounds[id] = r
	}
	return r.opened
}
