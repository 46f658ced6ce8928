package hub

import (
	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/domain/match"
	"tensorturn/domain/run"
)

// hardware is what a machine last told of itself since the hub started. Requirements are matched with it.
type hardware struct {
	cores  int
	vitals *machine.Vitals // nil: not told yet; never changed once it is here
}

// looked takes in what a sync says of its machine's hardware; most say nothing new.
func (m *liveness) looked(in Sync) {
	h := m.hardware[in.Machine]
	h.cores = in.Request.Beat.CPUs
	if v := in.Request.Beat.Vitals; v != nil {
		h.vitals = v
	}
	m.hardware[in.Machine] = h
}

// matched is the machine as requirements see it.
func (c *Core) matched(m *machine.State) match.Machine {
	h := c.mem.hardware[m.ID]
	return match.Machine{ID: m.ID, Name: m.Name, Labels: m.Labels(), Slots: m.Slots, Cores: h.cores, Vitals: h.vitals}
}

// possible is what a dry step took, as far as its machine could have held it; nil when nothing is left.
func (b *batch) possible(m domain.MachineID, slot int, took *run.Memory) *run.Memory {
	s := b.c.fold.machines[m]
	if took == nil || s == nil {
		return nil
	}
	teller := b.c.matched(s)
	if p := teller.Possible(slot, *took); p != (run.Memory{}) {
		return &p
	}
	return nil
}

// forgetHardware drops what no longer has a machine.
func (m *liveness) forgetHardware(f *fold) {
	for id := range m.hardware {
		if s := f.machines[id]; s == nil || s.Standing == machine.Revoked {
			delete(m.hardware, id)
			delete(m.allowances, id)
		}
	}
}
