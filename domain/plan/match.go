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

// known is what one plan has found out of the pool's slots and need not find out again for the next run.
type known struct {
	verdicts []*verdict // runs that wait often ask for the same: a sweep over learning rates does
	paces    [2]*pace   // of trainers that know GPUs, and of those that do not
	workers  []worker   // room for the next board's: nobody looks at two boards
}

func (k *known) pace(s *Snapshot, onCPU bool) *pace {
	p := &k.paces[0]
	if onCPU {
		p = &k.paces[1]
	}
	if *p == nil {
		*p = paceOf(s.Slots, onCPU)
	}
	return *p
}

// verdict gives the one of what the run needs.
func (k *known) verdict(s *Snapshot, r *run.State) *verdict {
	need := match.Of(&r.Spec, &r.Data, r.Take)
	for _, v := range k.verdicts {
		if v.need.Equal(&need) {
			return v
		}
	}
	v := &verdict{need: need, any: need.Anything()}
	if !v.any {
		v.why, v.judged = make([]string, len(s.Slots)), make([]bool, len(s.Slots))
	}
	k.verdicts = append(k.verdicts, v)
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
