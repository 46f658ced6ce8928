// Package placement decides which machines hold which deployed models: each model on as many machines as it wants, where there
// are so many, and what is lost, leaves or fails replaced. It is pure: the same lists give the same plan.
//
// It never moves a copy to balance a pool, since moving costs a download and a start and brings little; new copies go where
// the fewest are. broker/dispatch calls it; testdata/*.txt tells its rules as stories.
package placement

import (
	"cmp"
	"slices"

	"tensorturn/domain"
)

// Copies is how many machines hold a model when nobody says otherwise; MaxCopies is the most that may be asked for.
const (
	Copies    = 2
	MaxCopies = 16
)

// Key names one set of weights of a run: versions that share it share its copies.
type Key struct {
	Run     domain.RunID
	Member  int // of an ensemble, from 1; 0 for a fused run's model
	Weights domain.Digest
}

// Model is a model that shall be held.
type Model struct {
	Key    Key
	Copies int
}

// Machine is a machine that can be asked now, with what it holds or was told to hold.
type Machine struct {
	ID      domain.MachineID
	Room    int         // models at most
	Leaving bool        // it drains: it is given nothing new, and keeps what nobody else has ready
	Holds   map[Key]How // what it was told to hold
}

// How a machine stands with a model.
type How int

// The ways.
const (
	Loading How = iota // told to, and not heard of yet
	Ready
	Failed // it could not: another is tried
)

// Plan says what each machine shall hold, in the order of machines; each list is in the order of models. Models come in order
// of importance: where there is no room for all, the later ones have fewer copies, but none has a second one before each has
// its first.
func Plan(models []Model, machines []Machine) [][]Key {
	p := &planner{machines: machines, kept: make([]map[Key]bool, len(machines))}
	for i := range machines {
		p.kept[i] = map[Key]bool{}
	}
	for _, m := range models {
		p.keep(m)
	}
	for n := 1; n <= MaxCopies; n++ {
		for _, m := range models {
			if n <= m.Copies && p.count(m.Key) < n {
				p.add(m.Key)
			}
		}
	}
	out := make([][]Key, len(machines))
	for _, m := range models {
		for i := range machines {
			if p.kept[i][m.Key] && !slices.Contains(out[i], m.Key) {
				out[i] = append(out[i], m.Key)
			}
		}
	}
	return out
}

type planner struct {
	machines []Machine
	kept     []map[Key]bool
}

// keep lets a model's present copies stay, ready ones first, up to as many as it wants. Copies that failed stay nowhere, and
// those of a leaving machine only while too few others are ready.
func (p *planner) keep(m Model) {
	var ready, loading, leaving []int
	for i, x := range p.machines {
		how, ok := x.Holds[m.Key]
		switch {
		case !ok || how == Failed:
		case x.Leaving && how == Ready:
			leaving = append(leaving, i)
		case x.Leaving:
		case how == Ready:
			ready = append(ready, i)
		default:
			loading = append(loading, i)
		}
	}
	if n := m.Copies - len(ready); n > 0 {
		for _, i := range leaving[:min(n, len(leaving))] {
			p.kept[i][m.Key] = true
		}
	}
	stay := append(ready, loading...)
	for _, i := range stay[:min(m.Copies, len(stay))] {
		p.kept[i][m.Key] = true
	}
}

// count is the copies on machines that stay.
func (p *planner) count(k Key) (n int) {
	for i, m := range p.machines {
		if p.kept[i][k] && !m.Leaving {
			n++
		}
	}
	return n
}

// add gives a model to the machine with room that holds the fewest, the lowest id among equals.
func (p *planner) add(k Key) {
	best := -1
	for i, m := range p.machines {
		if m.Leaving || p.kept[i][k] || len(p.kept[i]) >= m.Room {
			continue
		}
		if how, ok := m.Holds[k]; ok && how == Failed {
			continue
		}
		if best < 0 || cmp.Or(cmp.Compare(len(p.kept[i]), len(p.kept[best])), cmp.Compare(m.ID, p.machines[best].ID)) < 0 {
			best = i
		}
	}
	if best >= 0 {
		p.kept[best][k] = true
	}
}
