package fleet

import (
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

func (v *View) applyMachine(e event.Envelope) {
	id := domain.MachineID(e.Agg)
	if d, ok := e.Data.(*machine.BecameEnrolled); ok {
		m := &Machine{ID: id, Name: d.Name, Standing: machine.Enrolled, Enrolled: e.Time, Since: e.Time, NKey: d.NKey, Account: d.Account}
		m.resize(d.Slots)
		v.byID[id], v.byNKey[d.NKey] = m, id
		v.order = append(v.order, id)
		return
	}
	m, ok := v.byID[id]
	if !ok {
		return
	}
	switch d := e.Data.(type) {
	case *machine.BecameOnline:
		m.stand(machine.Online, e.Time)
		m.resize(d.Slots)
		if d.Restarted {
			m.Restarts++
			m.Draining = false
		}
	case *machine.BecameSuspect:
		m.stand(machine.Suspect, e.Time)
	case *machine.BecameLost:
		m.stand(machine.Lost, e.Time)
	case *machine.BecameDraining:
		m.Draining = true
	case *machine.BecameDrained:
		m.stand(machine.Drained, e.Time)
		m.Draining = false
	case *machine.Resumed:
		m.Draining, m.Quarantined = false, ""
	case *machine.BecameRevoked:
		m.stand(machine.Revoked, e.Time)
		m.Draining = false
	case *machine.BecameQuarantined:
		m.Quarantined = d.Reason
	}
}

func (m *Machine) stand(s machine.Standing, at time.Time) { m.Standing, m.Since = s, at }

// resize gives the machine n slots and keeps what the remaining ones hold. 0 leaves the number as it is.
func (m *Machine) resize(n int) {
	if n == 0 {
		return
	}
	for i := len(m.Slots); i < n; i++ {
		m.Slots = append(m.Slots, Slot{Slot: domain.Slot(m.ID, i)})
	}
	m.Slots = m.Slots[:n]
}

// applyRun follows leases.
func (v *View) applyRun(e event.Envelope) {
	id := domain.RunID(e.Agg)
	switch d := e.Data.(type) {
	case *run.LeaseGranted:
		v.hold(d.Slot, Slot{Slot: d.Slot, Run: id, Unit: d.Unit, Round: d.Round, Epoch: domain.Epoch(e.Seq)})
	case *run.LeaseReleased:
		v.free(d.Slot, d.Epoch)
	case *run.LeaseExpired:
		v.free(d.Slot, d.Epoch)
	case *run.TaskFailed:
		v.free(d.Slot, d.Epoch)
	case *run.EvaluationFailed:
		v.free(d.Slot, d.Epoch)
	case *run.Evaluated:
		v.free(d.Slot, d.Epoch)
	case *run.Initialised:
		v.free(d.Slot, d.Epoch)
	}
}

func (v *View) hold(id domain.SlotID, s Slot) {
	if m, ok := v.byID[id.Machine()]; ok && id.Index() >= 0 && id.Index() < len(m.Slots) {
		m.Slots[id.Index()] = s
	}
}

func (v *View) free(id domain.SlotID, epoch domain.Epoch) {
	if m, ok := v.byID[id.Machine()]; ok && id.Index() >= 0 && id.Index() < len(m.Slots) && m.Slots[id.Index()].Epoch == epoch {
		m.Slots[id.Index()] = Slot{Slot: id}
	}
}
