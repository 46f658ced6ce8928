package run

import (
	"fmt"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// MaxOutputsLost is how often a member's outputs are made again from its weights. Outputs that vanish more often than
// that have a cause that trying again does not heal.
const MaxOutputsLost = 2

// NameMemberMuted names the fact that a member's outputs cannot be voted over.
const NameMemberMuted = "member.muted"

// MuteMember says that the worker cannot vote over the member's outputs. Again: their bytes are lost, and a slot may make
// them again from the member's weights; otherwise they are no outputs, and would be none again.
type MuteMember struct {
	Member  int
	Outputs domain.Digest
	Again   bool
	Reason  string
}

func (MuteMember) isCommand() {}

// MemberMuted takes a member's outputs away. Again: the member waits for a slot that makes them anew; otherwise it stays in, to be
// exported, without a vote.
type MemberMuted struct {
	Member  int           `msgpack:"member"`
	Outputs domain.Digest `msgpack:"outputs"`
	Again   bool          `msgpack:"again,omitempty"`
	Reason  string        `msgpack:"reason"`
}

// EventName is for event.Data.
func (*MemberMuted) EventName() string { return NameMemberMuted }

// Line is for event.Data.
func (e *MemberMuted) Line() string {
	then := "it has no vote"
	if e.Again {
		then = "a slot makes them again"
	}
	return fmt.Sprintf("outputs %s of member %d cannot be voted over, %s", e.Outputs.Short(), e.Member, then) + why(e.Reason)
}

// decideMute judges outputs that the present vote would read; a word on others is late.
func decideMute(s *State, c MuteMember) ([]event.Data, error) {
	if err := live(s, c); err != nil {
		return nil, err
	}
	m := s.Member(c.Member)
	switch {
	case m == nil:
		return nil, invalid(c, "there is no member %d", c.Member)
	case s.Phase != PhaseVoting || m.Outputs == nil || m.Outputs.Blob != c.Outputs:
		return nil, nil
	}
	fact := &MemberMuted{Member: m.Number, Outputs: c.Outputs, Again: c.Again && m.Lost < MaxOutputsLost, Reason: reasonOr(c.Reason, "they cannot be read")}
	facts := []event.Data{fact}
	if voters := s.Voters(); !fact.Again && len(voters) == 1 && voters[0] == m {
		facts = append(facts, s.unvoted(nil, s.Counted))
	}
	return facts, nil
}

// evolveMute applies the fact.
func (s *State) evolveMute(d *MemberMuted) {
	m := s.Member(d.Member)
	if m == nil {
		return
	}
	m.Outputs = nil
	m.Lost++
	s.Phase = PhaseTraining
	if d.Again {
		m.Status = MemberWaiting
		return
	}
	m.Unvoted = d.Reason
	s.voting()
}
