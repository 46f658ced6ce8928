// Package fleet is the view of the pool: its machines, what their slots hold, and its join tokens by public id.
package fleet

import (
	"slices"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/freeze"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// Machine is one machine as people see it.
type Machine struct {
	ID          domain.MachineID `json:"id"`
	Name        string           `json:"name"`
	Standing    machine.Standing `json:"standing"`
	Draining    bool             `json:"draining"`
	Stopped     bool             `json:"stopped,omitempty" doc:"it is drained because its agent was told to end, and works again once that is started"`
	Quarantined string           `json:"quarantined,omitempty"`
	Slots       []Slot           `json:"slots"`
	Enrolled    time.Time        `json:"enrolled"`
	Since       time.Time        `json:"since"` // of the present standing
	Restarts    int              `json:"restarts"`
	// Rest says when it rests by itself.
	Rest *machine.Rest `json:"rest,omitempty"`
	// Bench is what the machine last measured of its speed, Slow which figures are 30 % or more below its usual ones.
	Bench *machine.Bench      `json:"bench,omitempty"`
	Slow  []machine.Shortfall `json:"slow,omitempty"`
	// BenchWanted is the benchmark it shall take when it has nothing else to do, 0 for none.
	BenchWanted int `json:"benchWanted,omitempty"`
	// Unmeasured is why it could not be taken yet: the agent tries again every minute. Filled as Sandbox is.
	Unmeasured string            `json:"unmeasured,omitempty"`
	Labels     map[string]string `json:"labels,omitempty" doc:"of its owner, and those that its agent was started with"`
	NKey       string            `json:"nkey"`
	Account    string            `json:"account"`
	// Sandbox is what holds owners' programs there, as the machine last said it since the hub started. It is no fact of the
	// log: the view leaves it empty and the front fills it.
	Sandbox string `json:"sandbox,omitempty"`
	// Contested says that two agent processes speak with its key, filled as Sandbox is.
	Contested bool `json:"contested,omitempty"`
	// Vitals is what the machine last measured of its hardware, filled as Sandbox is.
	Vitals *machine.Vitals `json:"vitals,omitempty"`
}

// Slot is one slot and the lease it holds.
type Slot struct {
	Slot  domain.SlotID `json:"slot"`
	Run   domain.RunID  `json:"run,omitempty"`
	Unit  run.Unit      `json:"unit,omitempty"`
	Round int           `json:"round,omitempty"`
	Epoch domain.Epoch  `json:"epoch,omitempty"`
	// Paused says why the slot gets no work, empty when it may.
	Paused string `json:"paused,omitempty"`
	// Idle says why the slot holds no lease. It is no fact: the view leaves it empty and the front fills it where one machine is shown.
	Idle string `json:"idle,omitempty"`
}

// View holds all machines and tokens.
type View struct {
	byID   map[domain.MachineID]*row
	order  []domain.MachineID
	byNKey map[string]domain.MachineID
	tokens tokens
}

// New returns an empty view.
func New() *View {
	return &View{byID: map[domain.MachineID]*row{}, byNKey: map[string]domain.MachineID{}, tokens: newTokens()}
}

// Name names the view.
func (v *View) Name() string { return "fleet" }

// Part names what the view holds, for snapshots.
func (v *View) Part() freeze.Part {
	return freeze.Part{Name: v.Name(), Values: []any{&v.byID, &v.order, &v.byNKey, &v.tokens.byID, &v.tokens.order}}
}

// List copies all machines, oldest first.
func (v *View) List() []Machine {
	out := make([]Machine, 0, len(v.order))
	for _, id := range v.order {
		out = append(out, v.byID[id].machine())
	}
	return out
}

// Find gives the machine with the id, or else the only one with the name that is not revoked.
func (v *View) Find(idOrName string) (Machine, bool) {
	if r, ok := v.byID[domain.MachineID(idOrName)]; ok {
		return r.machine(), true
	}
	var found *row
	for _, id := range v.order {
		if r := v.byID[id]; r.State.Name == idOrName && r.State.Standing != machine.Revoked {
			if found != nil {
				return Machine{}, false
			}
			found = r
		}
	}
	if found == nil {
		return Machine{}, false
	}
	return found.machine(), true
}

// Revoked gives the ids of the revoked machines of a name, oldest first.
func (v *View) Revoked(name string) []domain.MachineID {
	var ids []domain.MachineID
	for _, id := range v.order {
		if s := v.byID[id].State; s.Standing == machine.Revoked && s.Name == name {
			ids = append(ids, id)
		}
	}
	return ids
}

// Candidates gives the ids of the machines that key may mean, oldest first: the machine with that id, else the machines of
// that name, else those whose id begins with it. Revoked ones count by their whole id alone.
func (v *View) Candidates(key string) []domain.MachineID {
	if _, ok := v.byID[domain.MachineID(key)]; ok {
		return []domain.MachineID{domain.MachineID(key)}
	}
	if key == "" {
		return nil
	}
	var named, begun []domain.MachineID
	for _, id := range v.order {
		s := v.byID[id].State
		if s.Standing == machine.Revoked {
			continue
		}
		if s.Name == key {
			named = append(named, id)
		}
		if strings.HasPrefix(string(id), key) {
			begun = append(begun, id)
		}
	}
	if len(named) > 0 {
		return named
	}
	return begun
}

// ByNKey gives the machine that a public nkey belongs to, "" when there is none.
func (v *View) ByNKey(nkey string) (domain.MachineID, machine.Standing) {
	r, ok := v.byID[v.byNKey[nkey]]
	if !ok {
		return "", ""
	}
	return r.State.ID, r.State.Standing
}

// machine makes the row's picture; it shares nothing with the row.
func (r *row) machine() Machine {
	s := r.State
	held := slices.Clone(r.Slots)
	for i := range held {
		if p, paused := s.Pause(i); paused {
			held[i].Paused = p.Reason
		}
	}
	var rest *machine.Rest
	if r := s.Rest; !r.Empty() {
		rest = &r
	}
	return Machine{
		ID: s.ID, Name: s.Name, Standing: s.Standing, Draining: s.Draining && s.Standing != machine.Drained, Stopped: s.Stopping && s.Standing == machine.Drained, Quarantined: s.Quarantined,
		Slots: held, Enrolled: s.EnrolledAt, Since: r.Since, Restarts: r.Restarts, Bench: s.Bench, Slow: s.Slow, BenchWanted: s.BenchWanted(), Rest: rest, NKey: s.NKey, Account: s.Account, Labels: s.Labels(),
	}
}

// Apply folds one event.
func (v *View) Apply(e event.Envelope) {
	switch e.Kind {
	case event.KindMachine:
		v.applyMachine(e)
	case event.KindRun:
		v.applyRun(e)
	case event.KindPool:
		v.tokens.apply(e)
	}
}
