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
	State    *machine.State
	Since    time.Time // of the present standing
	Restarts int
	Slots    []Slot
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
		before = r.State.Standing
	}
	r.State = machine.Evolve(r.State, e)
	if r.State.Standing != before {
		r.Since = e.Time
	}
	switch d := e.Data.(type) {
	case *machine.BecameEnrolled:
		v.byNKey[d.NKey] = id
	case *machine.BecameOnline:
		if d.Restarted {
			r.Restarts++
		}
	}
	r.resize(r.State.Slots)
}

// resize gives the machine n slots and keeps what the remaining ones hold.
func (r *row) resize(n int) {
	for i := len(r.Slots); i < n; i++ {
		r.Slots = append(r.Slots, Slot{Slot: domain.Slot(r.State.ID, i)})
	}
	r.Slots = r.Slots[:n]
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
	if i := id.Index(); ok && i >= 0 && i < len(r.Slots) {
		return &r.Slots[i]
	}
	return nil
}

// free takes the lease of the epoch from the slot; a newer one stays.
func (v *View) free(id domain.SlotID, epoch domain.Epoch) {
	if s := v.slot(id); s != nil && s.Epoch == epoch {
		*s = Slot{Slot: id}
	}
}
