package fleet

import (
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// row is one machine: the aggregate's own fold, so that people see what the hub decides by, and what only they ask for.
type row struct {
	state    *machine.State
	since    time.Time // of the present standing
	restarts int
	slots    []Slot
}

func (v *View) applyMachine(e event.Envelope) {
	id := domain.MachineID(e.Agg)
	r, ok := v.byID[id]
	if !ok {
		r = &row{}
		v.byID[id] = r
		v.order = append(v.order, id)
	}
	before := machine.Standing("")
	if ok {
		before = r.state.Standing
	}
	r.state = machine.Evolve(r.state, e)
	if r.state.Standing != before {
		r.since = e.Time
	}
	switch d := e.Data.(type) {
	case *machine.BecameEnrolled:
		v.byNKey[d.NKey] = id
	case *machine.BecameOnline:
		if d.Restarted {
			r.restarts++
		}
	}
	r.resize(r.state.Slots)
}

// resize gives the machine n slots and keeps what the remaining ones hold.
func (r *row) resize(n int) {
	for i := len(r.slots); i < n; i++ {
		r.slots = append(r.slots, Slot{Slot: domain.Slot(r.state.ID, i)})
	}
	r.slots = r.slots[:n]
}

// applyRun follows leases. Those of an init unit and of an evaluation end with a release of their own.
func (v *View) applyRun(e event.Envelope) {
	id := domain.RunID(e.Agg)
	switch d := e.Data.(type) {
	case *run.LeaseGranted:
		if s := v.slot(d.Slot); s != nil {
			*s = Slot{Slot: d.Slot, Run: id, Unit: d.Unit, Round: d.Round, Epoch: domain.Epoch(e.Seq)}
		}
	case *run.LeaseReleased:
		v.free(d.Slot, d.Epoch)
	case *run.LeaseExpired:
		v.free(d.Slot, d.Epoch)
	case *run.TaskFailed:
		v.free(d.Slot, d.Epoch)
	case *run.EvaluationFailed:
		v.free(d.Slot, d.Epoch)
	}
}

// slot finds a slot, nil when the machine does not have it.
func (v *View) slot(id domain.SlotID) *Slot {
	r, ok := v.byID[id.Machine()]
	if i := id.Index(); ok && i >= 0 && i < len(r.slots) {
		return &r.slots[i]
	}
	return nil
}

// free takes the lease of the epoch from the slot; a newer one stays.
func (v *View) free(id domain.SlotID, epoch domain.Epoch) {
	if s := v.slot(id); s != nil && s.Epoch == epoch {
		*s = Slot{Slot: id}
	}
}
