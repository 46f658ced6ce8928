package machine

import (
	"fmt"
	"slices"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Cause says who paused a slot. A slot may be paused for several causes at once, and works when none is left.
type Cause string

// The causes.
const (
	ByOwner   Cause = "owner" // by hand, until resumed
	ByHours   Cause = "hours" // quiet hours, as the machine's own clock reads
	ByOthers  Cause = "busy"  // another program uses the GPU
	ByAbsence Cause = "gone"  // the GPU does not answer, or has fallen off the bus
)

// The names of the facts of pauses.
const (
	NameSlotsPaused  = "slots.paused"
	NameSlotsResumed = "slots.resumed"
)

// SlotPause is one cause for which one slot gets no work.
type SlotPause struct {
	Slot   int    `msgpack:"slot"`
	Cause  Cause  `msgpack:"cause"`
	Reason string `msgpack:"reason"`
}

type (
	// Pause is the owner's: the slots, all when nil, contribute what they have trained and get no more.
	Pause struct {
		Slots  []int
		Reason string
	}
	// Unpause ends the owner's pause of the slots, of all when nil.
	Unpause struct{ Slots []int }
	// Away is what the agent says: the slots that cannot or shall not work now. A slot that is not named is back.
	Away struct{ Slots []SlotPause }
)

func (Pause) isCommand()   {}
func (Unpause) isCommand() {}
func (Away) isCommand()    {}

type (
	// SlotsPaused means that slots get no new work and give back what they hold, for one cause.
	SlotsPaused struct {
		Slots  []int  `msgpack:"slots"`
		Cause  Cause  `msgpack:"cause"`
		Reason string `msgpack:"reason"`
	}
	// SlotsResumed ends the pause of slots for one cause.
	SlotsResumed struct {
		Slots []int `msgpack:"slots"`
		Cause Cause `msgpack:"cause"`
	}
)

func (SlotsPaused) EventName() string  { return NameSlotsPaused }
func (SlotsResumed) EventName() string { return NameSlotsResumed }

// Line renders the fact.
func (e SlotsPaused) Line() string { return fmt.Sprintf("%s paused: %s", named(e.Slots), e.Reason) }

// Line renders the fact.
func (e SlotsResumed) Line() string {
	return fmt.Sprintf("%s resumed, no longer paused for %s", named(e.Slots), e.Cause)
}

func named(slots []int) string {
	words := make([]string, len(slots))
	for i, s := range slots {
		words[i] = fmt.Sprint(s)
	}
	if len(words) == 1 {
		return "slot " + words[0]
	}
	return "slots " + strings.Join(words, ", ")
}

// Pause gives the first cause for which a slot is paused.
func (s *State) Pause(slot int) (SlotPause, bool) {
	i := slices.IndexFunc(s.Paused, func(p SlotPause) bool { return p.Slot == slot })
	if i < 0 {
		return SlotPause{}, false
	}
	return s.Paused[i], true
}

// SlotUsable reports whether a slot may be given new work.
func (s *State) SlotUsable(slot int) bool {
	_, paused := s.Pause(slot)
	return s.Usable() && !paused
}

func (s *State) pausedFor(slot int, c Cause) bool {
	return slices.ContainsFunc(s.Paused, func(p SlotPause) bool { return p.Slot == slot && p.Cause == c })
}

// chosen are the slots of a command, all when it names none.
func (s *State) chosen(op string, named []int) ([]int, error) {
	if named == nil {
		for i := range s.Slots {
			named = append(named, i)
		}
	}
	for _, i := range named {
		if i < 0 || i >= s.Slots {
			return nil, domain.NotFound(op, fmt.Sprintf("there is no slot %d", i), fmt.Sprintf("the machine has %s, numbered from 0", slots(s.Slots)))
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(named))), nil
}

func decidePause(s *State, c Pause) ([]event.Data, error) {
	op := "pause machine " + string(s.ID)
	if s.Standing == Revoked {
		return nil, domain.Conflict(op, "the machine is revoked", "nothing is left to pause")
	}
	all, err := s.chosen(op, c.Slots)
	if err != nil {
		return nil, err
	}
	return s.pause(all, ByOwner, reason(c.Reason, "paused by the owner")), nil
}

func decideUnpause(s *State, c Unpause) ([]event.Data, error) {
	all, err := s.chosen("resume machine "+string(s.ID), c.Slots)
	if err != nil {
		return nil, err
	}
	return s.resume(all, ByOwner), nil
}

// decideAway compares what the agent says with what is known.
func decideAway(s *State, c Away) ([]event.Data, error) {
	if s.Standing == Revoked {
		return nil, nil
	}
	var out []event.Data
	for _, cause := range []Cause{ByAbsence, ByOthers, ByHours} {
		var away, back []int
		why := ""
		for i := range s.Slots {
			at := slices.IndexFunc(c.Slots, func(p SlotPause) bool { return p.Slot == i && p.Cause == cause })
			switch {
			case at < 0:
				back = append(back, i)
				continue
			case why == "" && !s.pausedFor(i, cause):
				why = c.Slots[at].Reason
			}
			away = append(away, i)
		}
		out = append(out, s.pause(away, cause, reason(why, "the agent gave no reason"))...)
		out = append(out, s.resume(back, cause)...)
	}
	return out, nil
}

// pause gives the fact for those slots that are not paused for the cause.
func (s *State) pause(slots []int, c Cause, why string) []event.Data {
	slots = slices.DeleteFunc(slices.Clone(slots), func(i int) bool { return s.pausedFor(i, c) })
	if len(slots) == 0 {
		return nil
	}
	return []event.Data{&SlotsPaused{Slots: slots, Cause: c, Reason: why}}
}

func (s *State) resume(slots []int, c Cause) []event.Data {
	slots = slices.DeleteFunc(slices.Clone(slots), func(i int) bool { return !s.pausedFor(i, c) })
	if len(slots) == 0 {
		return nil
	}
	return []event.Data{&SlotsResumed{Slots: slots, Cause: c}}
}

// evolvePause makes a new list: a copy of the state keeps its own.
func (s *State) evolvePause(slots []int, c Cause, why string, paused bool) {
	next := slices.DeleteFunc(slices.Clone(s.Paused), func(p SlotPause) bool { return p.Cause == c && slices.Contains(slots, p.Slot) })
	if paused {
		for _, i := range slots {
			next = append(next, SlotPause{Slot: i, Cause: c, Reason: why})
		}
	}
	s.setPaused(next)
}

// setPaused keeps pauses of slots that the machine has, nil for none, so that equal states are equal.
func (s *State) setPaused(next []SlotPause) {
	next = slices.DeleteFunc(slices.Clone(next), func(p SlotPause) bool { return p.Slot >= s.Slots })
	if len(next) == 0 {
		next = nil
	}
	s.Paused = next
}
