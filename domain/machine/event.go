package machine

import (
	"fmt"

	"tensorturn/domain"
)

// The names of the facts. They are for ever.
const (
	NameEnrolled    = "machine.enrolled"
	NameOnline      = "machine.online"
	NameSuspect     = "machine.suspect"
	NameLost        = "machine.lost"
	NameDraining    = "machine.draining"
	NameDrained     = "machine.drained"
	NameResumed     = "machine.resumed"
	NameRevoked     = "machine.revoked"
	NameQuarantined = "machine.quarantined"
)

// The facts of a machine. Durations are seconds on the hub's clock.
type (
	// BecameEnrolled makes the machine known.
	BecameEnrolled struct {
		Name    string         `msgpack:"name"`
		NKey    string         `msgpack:"nkey"`    // public
		Account string         `msgpack:"account"` // public nkey of its NATS account
		Slots   int            `msgpack:"slots"`
		Token   domain.TokenID `msgpack:"token"` // accessor, never the secret
		At      int64          `msgpack:"at"`    // unix microseconds
	}
	// BecameOnline is first contact, contact after a silence, or a new agent process.
	BecameOnline struct {
		Incarnation domain.Incarnation `msgpack:"incarnation"`
		Slots       int                `msgpack:"slots"`
		Was         Standing           `msgpack:"was"`
		Restarted   bool               `msgpack:"restarted"` // another agent process than the one before
	}
	// BecameSuspect is a silence of L/8.
	BecameSuspect struct {
		Silent float64 `msgpack:"silent"`
	}
	// BecameLost is a silence of L.
	BecameLost struct {
		Silent float64 `msgpack:"silent"`
	}
	// BecameDraining means that the machine gets no new work and leaves when it holds nothing.
	BecameDraining struct {
		Reason   string `msgpack:"reason"`
		Stopping bool   `msgpack:"stopping"`
	}
	// BecameDrained means that the machine left in good order.
	BecameDrained struct{}
	// Resumed ends a drain or a quarantine.
	Resumed struct {
		Draining    bool   `msgpack:"draining"`    // it was draining
		Quarantined string `msgpack:"quarantined"` // the quarantine's reason, empty when there was none
	}
	// BecameRevoked ends the machine's membership for ever.
	BecameRevoked struct {
		Reason string `msgpack:"reason"`
	}
	// BecameQuarantined keeps new work from the machine until it is resumed.
	BecameQuarantined struct {
		Reason string `msgpack:"reason"`
	}
)

func (BecameEnrolled) EventName() string    { return NameEnrolled }
func (BecameOnline) EventName() string      { return NameOnline }
func (BecameSuspect) EventName() string     { return NameSuspect }
func (BecameLost) EventName() string        { return NameLost }
func (BecameDraining) EventName() string    { return NameDraining }
func (BecameDrained) EventName() string     { return NameDrained }
func (Resumed) EventName() string           { return NameResumed }
func (BecameRevoked) EventName() string     { return NameRevoked }
func (BecameQuarantined) EventName() string { return NameQuarantined }

// Line renders the fact.
func (e BecameEnrolled) Line() string {
	s := fmt.Sprintf("enrolled %q with %s", e.Name, slots(e.Slots))
	if e.Token != "" {
		s += " by token " + string(e.Token)
	}
	return s
}

// Line renders the fact.
func (e BecameOnline) Line() string {
	s := fmt.Sprintf("online with %s, was %s", slots(e.Slots), e.Was)
	if e.Restarted {
		s += ", a new agent process"
	}
	return s
}

// Line renders the fact.
func (e BecameSuspect) Line() string { return fmt.Sprintf("suspect: silent for %.1f s", e.Silent) }

// Line renders the fact.
func (e BecameLost) Line() string { return fmt.Sprintf("lost: silent for %.1f s", e.Silent) }

// Line renders the fact.
func (e BecameDraining) Line() string { return "draining: " + e.Reason }

// Line renders the fact.
func (BecameDrained) Line() string { return "drained: holds nothing, may leave" }

// Line renders the fact.
func (e Resumed) Line() string {
	if e.Quarantined != "" {
		return "resumed from quarantine: " + e.Quarantined
	}
	return "resumed from draining"
}

// Line renders the fact.
func (e BecameRevoked) Line() string { return "revoked: " + e.Reason }

// Line renders the fact.
func (e BecameQuarantined) Line() string { return "quarantined: " + e.Reason }

func slots(n int) string {
	if n == 1 {
		return "1 slot"
	}
	return fmt.Sprintf("%d slots", n)
}
