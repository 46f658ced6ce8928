package plan

import (
	"cmp"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/match"
	"tensorturn/domain/run"
)

// unfit says why the slot does not meet the run's requirements, empty when it does: it gets no lease of the run. One that holds a lease
// keeps it to its end: what it has trained is as good as before. Only slots that are free, or that somebody asks about, are judged.
func (b *board) unfit(w *worker) string {
	if w.index < 0 {
		return ""
	}
	return b.verdict.of(b.snap, w.index)
}

// verdict says for each slot of the snapshot why it does not meet one need. Each is judged once, when it is asked for.
type verdict struct {
	need   match.Need
	any    bool     // every slot meets it
	why    []string // empty where the slot meets it
	judged []bool
}

// of gives why the slot at i does not meet the need, empty when it does.
func (v *verdict) of(s *Snapshot, i int) string {
	if v.any {
		return ""
	}
	if !v.judged[i] {
		id := s.Slots[i].ID
		m := machineOf(s.Machines, id.Machine())
		if m == nil {
			m = &match.Machine{ID: id.Machine()}
		}
		v.why[i], _ = v.need.Slot(m, id.Index())
		v.judged[i] = true
	}
	return v.why[i]
}

// verdicts are those of one plan. Runs that wait often ask for the same: a sweep over learning rates does.
type verdicts []*verdict

// on gives the verdict of what the run needs.
func (vs *verdicts) on(s *Snapshot, r *run.State) *verdict {
	need := match.Of(&r.Spec, &r.Data, r.Take)
	for _, v := range *vs {
		if v.need.Equal(&need) {
			return v
		}
	}
	v := &verdict{need: need, any: need.Anything()}
	if !v.any {
		v.why, v.judged = make([]string, len(s.Slots)), make([]bool, len(s.Slots))
	}
	*vs = append(*vs, v)
	return v
}

// machineOf finds a machine, nil when it is not listed.
func machineOf(machines []match.Machine, id domain.MachineID) *match.Machine {
	i, ok := slices.BinarySearchFunc(machines, id, func(m match.Machine, id domain.MachineID) int { return cmp.Compare(m.ID, id) })
	if !ok {
		return nil
	}
	return &machines[i]
}
