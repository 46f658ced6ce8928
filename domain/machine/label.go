package machine

import (
	"fmt"
	"maps"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// NameLabelled is the name of the fact of labels.
const NameLabelled = "machine.labelled"

// Labeller says who gave a machine its labels. Of one key the owner's value counts.
type Labeller string

// The labellers.
const (
	LabelledByOwner Labeller = "owner" // machine label
	LabelledByAgent Labeller = "agent" // agent start --label
)

type (
	// Label is the owner's: it sets labels and removes those of the keys that are named.
	Label struct {
		Set    map[string]string
		Remove []string
	}
	// TellLabels is what the agent says: all labels it was started with.
	TellLabels struct{ Labels map[string]string }

	// Labelled gives all labels that the machine has from one labeller from now on.
	Labelled struct {
		By     Labeller          `msgpack:"by"`
		Labels map[string]string `msgpack:"labels"`
	}
)

func (Label) isCommand()      {}
func (TellLabels) isCommand() {}

func (Labelled) EventName() string { return NameLabelled }

// Line renders the fact.
func (e Labelled) Line() string {
	if len(e.Labels) == 0 {
		return fmt.Sprintf("has no labels of its %s any more", e.By)
	}
	return fmt.Sprintf("labels of its %s: %s", e.By, domain.LabelText(e.Labels))
}

// Labels gives all labels of the machine, nil for none.
func (s *State) Labels() map[string]string {
	if len(s.Owned)+len(s.Told) == 0 {
		return nil
	}
	all := maps.Clone(s.Told)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, s.Owned)
	return all
}

func decideLabel(s *State, c Label) ([]event.Data, error) {
	op := "label machine " + string(s.ID)
	if s.Standing == Revoked {
		return nil, domain.Conflict(op, "the machine is revoked", "label one that is in the pool: tensorturn machine list")
	}
	next := maps.Clone(s.Owned)
	if next == nil {
		next = map[string]string{}
	}
	for _, key := range c.Remove {
		if _, told := s.Told[key]; told && s.Owned[key] == "" {
			return nil, domain.Conflict(op, fmt.Sprintf("its agent was started with the label %q", domain.Clip(key, domain.MaxLabel)), "give it another value, or start the agent without it")
		}
		delete(next, key)
	}
	maps.Copy(next, c.Set)
	if err := domain.CheckLabels(op, "the machine", next); err != nil {
		return nil, err
	}
	if maps.Equal(next, s.Owned) {
		return nil, nil
	}
	return []event.Data{&Labelled{By: LabelledByOwner, Labels: next}}, nil
}

// decideTold takes over what the agent says. Labels that cannot be are not taken: they would stand in the log for ever.
func decideTold(s *State, c TellLabels) ([]event.Data, error) {
	if s.Standing == Revoked || maps.Equal(c.Labels, s.Told) {
		return nil, nil
	}
	if err := domain.CheckLabels("label machine "+string(s.ID), "the agent", c.Labels); err != nil {
		return nil, err
	}
	labels := maps.Clone(c.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	return []event.Data{&Labelled{By: LabelledByAgent, Labels: labels}}, nil
}

// evolveLabels replaces the labels of one labeller; nil for none, so that equal states are equal.
func (s *State) evolveLabels(e *Labelled) {
	labels := maps.Clone(e.Labels)
	if len(labels) == 0 {
		labels = nil
	}
	if e.By == LabelledByAgent {
		s.Told = labels
	} else {
		s.Owned = labels
	}
}
