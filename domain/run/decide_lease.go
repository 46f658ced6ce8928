package run

import (
	"math"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// leaseUnder finds the lease that a command of an agent acts under. Any other epoch than the present one is fenced.
// unit "" allows any.
func leaseUnder(s *State, c Command, slot domain.SlotID, epoch domain.Epoch, unit Unit) (*Lease, error) {
	l := s.Leases[slot]
	if l == nil || l.Epoch != epoch {
		return nil, fenced(s, c, slot, epoch)
	}
	if unit != "" && l.Unit != unit {
		return nil, conflict(c, "the lease is for %s, not for %s", l.Unit, unit)
	}
	return l, nil
}

// fenced says which epoch is in force instead.
func fenced(s *State, c Command, slot domain.SlotID, epoch domain.Epoch) error {
	why := "the lease has ended"
	if l := s.Leases[slot]; l != nil && l.Epoch > epoch {
		why = "the slot has a newer lease"
	}
	if s.Phase.Ended() {
		why = "the run is " + string(s.Phase)
	}
	return domain.Fenced(opOf(c), why)
}

// decideGrant binds a unit to a slot.
func decideGrant(s *State, c GrantLease) ([]event.Data, error) {
	if err := working(s, c); err != nil {
		return nil, err
	}
	if !domain.ValidID(string(c.Slot.Machine())) || c.Slot.Index() < 0 || c.Slot.Index() >= domain.MaxSlotsPerMachine ||
		domain.Slot(c.Slot.Machine(), c.Slot.Index()) != c.Slot {
		return nil, invalid(c, "%q is not a slot", domain.Clip(string(c.Slot), 80))
	}
	if l := s.Leases[c.Slot]; l != nil {
		if l.Unit == c.Unit && l.Round == c.Round && l.Member == c.Member {
			return nil, nil
		}
		return nil, conflict(c, "the slot holds the lease of %s since %d", l.Unit, l.Epoch)
	}
	if err := wanted(s, c); err != nil {
		return nil, err
	}
	if len(s.Leases) >= MaxLeases {
		return nil, conflict(c, "the run has %d leases, which is the limit", MaxLeases)
	}
	single := c.Unit == UnitMember && s.Member(c.Member).Single
	return one(&LeaseGranted{Slot: c.Slot, Unit: c.Unit, Round: c.Round, Member: c.Member, Single: single, Reason: reasonOr(c.Reason, "planned")})
}

// wanted refuses a unit that the run has no use for now.
func wanted(s *State, c GrantLease) error {
	if (c.Unit == UnitMember) != (s.Ensemble != nil) || c.Unit != UnitMember && c.Member != 0 {
		return conflict(c, "the run is of mode %s", s.Spec.Mode)
	}
	switch c.Unit {
	case UnitMember:
		return wantedMember(s, c)
	case UnitInit:
		if s.Phase != PhaseSubmitted || c.Round != 0 {
			return conflict(c, "the run has its first base")
		}
		if l := s.LeaseFor(UnitInit); l != nil {
			return conflict(c, "%s makes the first base", l.Slot)
		}
	case UnitTrain:
		if s.Phase != PhaseTraining || s.Open == nil || s.Open.Closed || s.Open.Number != c.Round {
			return conflict(c, "round %d is not open", c.Round)
		}
	case UnitEvaluate:
		if s.Evaluation == nil || s.Evaluation.Round != c.Round {
			return conflict(c, "no evaluation of round %d is wanted", c.Round)
		}
		if l := s.LeaseFor(UnitEvaluate); l != nil {
			return conflict(c, "%s evaluates", l.Slot)
		}
	default:
		return invalid(c, "%q is not a unit", domain.Clip(string(c.Unit), 40))
	}
	return nil
}

// decideRelease ends a lease in good order. All it holds goes back.
func decideRelease(s *State, c ReleaseLease) ([]event.Data, error) {
	l := s.Leases[c.Slot]
	if l == nil {
		return nil, nil
	}
	return lost(s, l, release(s, l, reasonOr(c.Reason, "released")), reasonOr(c.Reason, "released"))
}

// decideExpire ends a lease whose holder is lost. A lease that has ended in the meantime is nothing to expire.
func decideExpire(s *State, c ExpireLease) ([]event.Data, error) {
	l := s.Leases[c.Slot]
	if l == nil {
		return nil, nil
	}
	if !finite(c.Silent) || c.Silent < 0 {
		return nil, invalid(c, "%v seconds of silence", c.Silent)
	}
	reason := reasonOr(c.Reason, "no contact")
	return lost(s, l, &LeaseExpired{Slot: l.Slot, Epoch: l.Epoch, Reason: reason, Silent: c.Silent, Requeued: s.Held(l.Slot)}, reason)
}

func release(s *State, l *Lease, reason string) *LeaseReleased { return releaseBut(s, l, reason, nil) }

// releaseBut is release when the leases of gone have ended just before, in the same decision.
func releaseBut(s *State, l *Lease, reason string, gone map[domain.SlotID]bool) *LeaseReleased {
	return &LeaseReleased{Slot: l.Slot, Epoch: l.Epoch, Reason: reason, Returned: s.heldBut(l.Slot, gone)}
}

// releaseAll ends every lease but that of the slot except, in the order of slots.
func releaseAll(s *State, reason string, except domain.SlotID) []event.Data {
	var facts []event.Data
	gone := map[domain.SlotID]bool{except: true}
	for _, slot := range s.Slots() {
		if slot != except {
			facts = append(facts, releaseBut(s, s.Leases[slot], reason, gone))
			gone[slot] = true
		}
	}
	return facts
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
