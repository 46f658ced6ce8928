package machine

import (
	"fmt"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Decide says what c makes true of the machine, nothing when it already is, or why it may not be. s is nil before Enrol.
// The events carry no id: the caller knows which machine it asked about.
func Decide(s *State, c Command) ([]event.Data, error) {
	if c, ok := c.(Enrol); ok {
		return decideEnrol(s, c)
	}
	if s == nil {
		return nil, domain.NotFound("decide machine", "the machine is not enrolled", "join it with a token: tensorturn token create")
	}
	switch c := c.(type) {
	case Connect:
		return decideConnect(s, c)
	case MarkSuspect:
		if s.Standing != Online {
			return nil, nil
		}
		return []event.Data{&BecameSuspect{Silent: c.Silent}}, nil
	case Lose:
		if s.Standing != Online && s.Standing != Suspect {
			return nil, nil
		}
		return []event.Data{&BecameLost{Silent: c.Silent}}, nil
	case Drain:
		return decideDrain(s, c)
	case MarkDrained:
		return decideDrained(s)
	case Pause:
		return decidePause(s, c)
	case Unpause:
		return decideUnpause(s, c)
	case Away:
		return decideAway(s, c)
	case SetRest:
		return decideRest(s, c)
	case AskBench:
		return decideAskBench(s, c)
	case RecordBench:
		return decideRecordBench(s, c)
	case Label:
		return decideLabel(s, c)
	case TellLabels:
		return decideTold(s, c)
	case Resume:
		return decideResume(s)
	case Revoke:
		if s.Standing == Revoked {
			return nil, nil
		}
		return []event.Data{&BecameRevoked{Reason: reason(c.Reason, "by its owner")}}, nil
	case Quarantine:
		if s.Standing == Revoked || s.Quarantined != "" {
			return nil, nil
		}
		return []event.Data{&BecameQuarantined{Reason: reason(c.Reason, "no reason given")}}, nil
	}
	panic(fmt.Sprintf("broken promise: machine.Decide knows every command, not %T", c))
}

func decideEnrol(s *State, c Enrol) ([]event.Data, error) {
	op := "enrol machine " + domain.Clip(string(c.ID), domain.MaxIDLength)
	if s != nil {
		if s.Standing == Revoked {
			return nil, domain.Conflict(op, "a machine of this id was revoked", "enrol under a new id; a revoked one is never used again")
		}
		if s.NKey == c.NKey && s.Account == c.Account {
			return nil, nil
		}
		return nil, domain.Conflict(op, "a machine of this id is enrolled with another key",
			"enrol under a new id")
	}
	if !domain.ValidID(string(c.ID)) {
		return nil, domain.Invalid(op, fmt.Sprintf("%q is not an id", domain.Clip(string(c.ID), 80)), "use lower-case letters, digits, '-' or '_'")
	}
	if len(c.Name) > domain.MaxNameLength {
		return nil, domain.Invalid(op, fmt.Sprintf("the name has %d bytes, %d are allowed", len(c.Name), domain.MaxNameLength), "choose a shorter name")
	}
	if c.NKey == "" || c.Account == "" {
		return nil, domain.Invalid(op, "the public key or the account is missing", "join again with a current agent")
	}
	if err := checkSlots(op, c.Slots); err != nil {
		return nil, err
	}
	return []event.Data{&BecameEnrolled{Name: c.Name, NKey: c.NKey, Account: c.Account, Slots: c.Slots, Token: c.Token, At: c.At.UnixMicro()}}, nil
}

func decideConnect(s *State, c Connect) ([]event.Data, error) {
	op := "connect machine " + string(s.ID)
	if s.Standing == Revoked {
		return nil, domain.Denied(op, "the machine is revoked", "enrol it again as a new machine: tensorturn token create")
	}
	if c.Incarnation == "" || len(c.Incarnation) > domain.MaxIDLength {
		return nil, domain.Invalid(op, fmt.Sprintf("an incarnation has 1 to %d bytes, not %d", domain.MaxIDLength, len(c.Incarnation)), "update the agent")
	}
	if c.Slots == 0 {
		c.Slots = s.Slots
	}
	if err := checkSlots(op, c.Slots); err != nil {
		return nil, err
	}
	restarted := s.Incarnation != "" && c.Incarnation != s.Incarnation
	if !restarted && c.Slots == s.Slots && (s.Standing == Online || s.Standing == Drained) {
		return nil, nil // a drained agent says goodbye until its process ends
	}
	if !restarted && s.Standing == Drained {
		return nil, nil
	}
	return []event.Data{&BecameOnline{Incarnation: c.Incarnation, Slots: c.Slots, Was: s.Standing, Restarted: restarted}}, nil
}

func decideDrain(s *State, c Drain) ([]event.Data, error) {
	if s.Standing == Revoked {
		return nil, domain.Conflict("drain machine "+string(s.ID), "the machine is revoked", "nothing is left to drain")
	}
	if s.Standing == Drained || s.Draining && (s.Stopping == c.Stopping || c.Stopping) {
		return nil, nil // the operator's drain outranks the agent's, never the other way round
	}
	why := "asked by the operator"
	if c.Stopping {
		why = "the agent was told to stop"
	}
	return []event.Data{&BecameDraining{Reason: reason(c.Reason, why), Stopping: c.Stopping}}, nil
}

func decideDrained(s *State) ([]event.Data, error) {
	switch {
	case s.Standing == Drained:
		return nil, nil
	case !s.Draining:
		return nil, domain.Conflict("mark machine "+string(s.ID)+" drained", "it is not draining", "drain it first")
	case !s.Stopping:
		return nil, domain.Conflict("mark machine "+string(s.ID)+" drained", "its operator drains it and its agent stays", "an operator's drain ends with resume")
	case s.Standing != Online && s.Standing != Suspect:
		return nil, domain.Conflict("mark machine "+string(s.ID)+" drained", "it is "+string(s.Standing)+": nobody knows what it holds", "wait until it is heard again")
	}
	return []event.Data{&BecameDrained{}}, nil
}

func decideResume(s *State) ([]event.Data, error) {
	op := "resume machine " + string(s.ID)
	switch {
	case s.Standing == Revoked:
		return nil, domain.Conflict(op, "the machine is revoked", "enrol it again as a new machine: tensorturn token create")
	case s.Standing == Drained && s.Quarantined == "":
		return nil, domain.Conflict(op, "the machine is drained and has left", "start its agent again: that alone brings it back")
	case !s.Draining && s.Quarantined == "":
		return decideUnpause(s, Unpause{})
	}
	paused, err := decideUnpause(s, Unpause{})
	return append([]event.Data{&Resumed{Draining: s.Draining, Quarantined: s.Quarantined}}, paused...), err
}

func checkSlots(op string, n int) error {
	if n < 1 || n > domain.MaxSlotsPerMachine {
		return domain.Invalid(op, fmt.Sprintf("%d slots; a machine has 1 to %d", n, domain.MaxSlotsPerMachine), "start the agent with --slots in this range")
	}
	return nil
}

// reason bounds foreign text and never leaves a fact without one.
func reason(given, otherwise string) string {
	if given == "" {
		return otherwise
	}
	return domain.Clip(given, domain.MaxReasonLength)
}
