package plan

import (
	"cmp"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/match"
)

// match finds the slots that do not meet the run's requirements: they get no lease of it. One that holds a lease keeps it to its
// end: what it has trained is as good as before.
func (b *board) match(machines []match.Machine) {
	need := match.Of(&b.r.Spec, &b.r.Data, b.r.Take)
	if need.Anything() {
		return
	}
	for i := range b.workers {
		w := &b.workers[i]
		if w.index < 0 {
			continue
		}
		m := machineOf(machines, w.ID.Machine())
		if m == nil {
			m = &match.Machine{ID: w.ID.Machine()}
		}
		w.unfit, _ = need.Slot(m, w.ID.Index())
	}
}

// machineOf finds a machine, nil when it is not listed.
func machineOf(machines []match.Machine, id domain.MachineID) *match.Machine {
	i, ok := slices.BinarySearchFunc(machines, id, func(m match.Machine, id domain.MachineID) int { return cmp.Compare(m.ID, id) })
	if !ok {
		return nil
	}
	return &machines[i]
}
