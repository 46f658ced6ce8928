// Package machine is the machine as an event-sourced aggregate: enrolled, online, suspect, lost, draining, drained,
// revoked; its slots; quarantine. Contact itself is the hub's memory; only its transitions are facts.
//
//	enrolled ──first sync──▶ online ⇄ suspect ⇄ lost      (a lost machine is never deleted; it comes back online)
//	                          │ drain            revoke from any state is final
//	                          ▼
//	                       draining ──holds nothing──▶ drained ──sync of a new incarnation──▶ online
//
// Who may cause what: enrolment (gateway, with a token) Enrol; hub on sync Connect, on timers Suspect and Lose, when a
// draining machine holds nothing Drained; operator Drain, Resume, Revoke; hub after three refusals Quarantine.
package machine

import (
	"time"

	"tensorturn/domain"
)

// Standing is where a machine stands.
type Standing string

// The standings.
const (
	Enrolled Standing = "enrolled" // known, never seen
	Online   Standing = "online"
	Suspect  Standing = "suspect" // silent for L/8: gets no new work, its queued chunks move
	Lost     Standing = "lost"    // silent for L: its leases expire
	Drained  Standing = "drained" // left in good order
	Revoked  Standing = "revoked" // its credential is dead, for ever
)

// State is everything decisions about a machine need.
type State struct {
	ID          domain.MachineID
	Seq         uint64
	Name        string // given by its owner, for people
	NKey        string // the machine's public user nkey
	Account     string // its NATS account's public nkey: the identity in the imported subject
	Slots       int
	Standing    Standing
	Draining    bool
	Quarantined string // reason, empty when not
	Incarnation domain.Incarnation
	EnrolledAt  time.Time
}

// Usable reports whether the machine may be given new work.
func (s *State) Usable() bool {
	return s.Standing == Online && !s.Draining && s.Quarantined == ""
}
