package machine

import (
	"fmt"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Evolve applies a fact. s is nil before the first one. It cannot fail; a fact that no version of this package knows is a
// broken promise of the registry.
func Evolve(s *State, e event.Envelope) *State {
	if s == nil {
		s = &State{ID: domain.MachineID(e.Agg)}
	}
	s.Seq = e.Seq
	switch d := e.Data.(type) {
	case *BecameEnrolled:
		s.Name, s.NKey, s.Account, s.Slots = d.Name, d.NKey, d.Account, d.Slots
		s.Standing, s.EnrolledAt = Enrolled, time.UnixMicro(d.At).UTC()
	case *BecameOnline:
		if d.Restarted && (s.Standing == Drained || s.Stopping) {
			s.Draining, s.Stopping = false, false
		}
		s.Standing, s.Incarnation, s.Slots = Online, d.Incarnation, d.Slots
		s.setPaused(s.Paused)
	case *BecameSuspect:
		s.Standing = Suspect
	case *BecameLost:
		s.Standing = Lost
	case *BecameDraining:
		s.Draining, s.Stopping = true, d.Stopping
	case *BecameDrained:
		s.Standing = Drained
	case *Resumed:
		if s.Standing != Drained {
			s.Draining, s.Stopping = false, false
		}
		s.Quarantined = ""
	case *BecameRevoked:
		s.Standing, s.Draining, s.Stopping = Revoked, false, false
	case *SlotsPaused:
		s.evolvePause(d.Slots, d.Cause, d.Reason, true)
	case *SlotsResumed:
		s.evolvePause(d.Slots, d.Cause, "", false)
	case *RestSet:
		s.Rest = d.Rest
	case *BenchAsked:
		s.Asked, s.AskedFor, s.AskedAnew = d.Number, d.Reason, s.AskedAnew || d.Anew
	case *Benchmarked:
		s.evolveBench(d, e.Time)
	case *BecameSlow:
		s.Slow = d.Short
	case *Recovered:
		s.Slow = nil
	case *Labelled:
		s.evolveLabels(d)
	case *BecameQuarantined:
		s.Quarantined = d.Reason
	default:
		panic(fmt.Sprintf("broken promise: machine.Evolve knows every fact of a machine, not %T", e.Data))
	}
	return s
}
