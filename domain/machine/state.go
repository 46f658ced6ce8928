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

// State is everything decisions about a machine need. Evolve owns it: it is changed in place and must not be shared.
type State struct {
	ID          domain.MachineID
	Seq         uint64
	Name        string // given by its owner, for people
	NKey        string // the machine's public user nkey
	Account     string // its NATS account's public nkey: the identity in the imported subject
	Slots       int
	Standing    Standing
	Draining    bool
	Stopping    bool   // the drain was the agent's wish: it ends with the incarnation
	Quarantined string // reason, empty when not
	Incarnation domain.Incarnation
	EnrolledAt  time.Time
	Paused      []SlotPause       // in the order in which they began
	Rest        Rest              // when it rests by itself, by its owner's word
	Bench       *Bench            // the newest, nil before the first
	Asked       int               // number of the newest benchmark that was asked for by a fact
	AskedFor    string            // why
	AskedAnew   bool              // with the next one, what is usual begins anew
	Usual       []Usual           // what the machine usually does, in the order in which it was first measured
	Slow        []Shortfall       // figures far below it
	Owned, Told map[string]string // labels, by who gave them; nil for none
}

// Usable reports whether the machine may be given new work.
func (s *State) Usable() bool {
	return s.Standing == Online && !s.Draining && s.Quarantined == ""
}
