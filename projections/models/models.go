// Package models is the view of deployed models: their names, versions and which one answers.
package models

import (
	"slices"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/freeze"
	"tensorturn/domain/pool"
	"tensorturn/domain/vote"
)

// Model is one deployed name as people see it.
type Model struct {
	Name     domain.ModelID `json:"name"`
	Serving  int            `json:"serving"` // the version that answers
	Retired  bool           `json:"retired"`
	Versions []Version      `json:"versions"` // the newest pool.MaxVersions, oldest first
	// Held says where the version that answers is ready, if that is on agents. It is no fact: the view leaves it empty and the
	// front fills it.
	Held *Held `json:"held,omitempty"`
}

// Held is how a version stands on the machines now.
type Held struct {
	Machines []domain.MachineID `json:"machines" doc:"that are connected and have a model of it ready"`
	Ready    int                `json:"ready" doc:"models of it that some machine has ready"`
	Models   int                `json:"models" doc:"that it has: 1, or the members of an ensemble"`
	Able     int                `json:"able" doc:"machines that are connected and may hold models"`
}

// Version is one version of a model.
type Version struct {
	Version  int           `json:"version"`
	Run      domain.RunID  `json:"run"`
	Kind     string        `json:"kind"`
	Weights  domain.Digest `json:"weights"`
	Layout   domain.Digest `json:"layout"`
	Data     domain.Digest `json:"data"` // packed data whose statistics standardise inputs
	Where    pool.Where    `json:"where"`
	Members  []pool.Member `json:"members,omitempty"`
	Deployed time.Time     `json:"deployed"`

	Rule        vote.Rule `json:"rule,omitempty"` // of an ensemble
	Temperature float64   `json:"temperature,omitempty"`
	Copies      int       `json:"copies,omitempty"` // machines that hold each model, on agents; 2 when absent
}

// Find gives the version of the number; 0 is the one that answers.
func (m Model) Find(number int) (Version, bool) {
	if number == 0 {
		number = m.Serving
	}
	i := slices.IndexFunc(m.Versions, func(v Version) bool { return v.Version == number })
	if i < 0 {
		return Version{}, false
	}
	return m.Versions[i], true
}

// View holds all models by name.
type View struct{ list []*Model }

// New returns an empty view.
func New() *View { return &View{} }

// Name names the view.
func (v *View) Name() string { return "models" }

// Part names what the view holds, for snapshots.
func (v *View) Part() freeze.Part { return freeze.Part{Name: v.Name(), Values: []any{&v.list}} }

// List copies the models, by name.
func (v *View) List() []Model {
	out := make([]Model, 0, len(v.list))
	for _, m := range v.list {
		out = append(out, m.copy())
	}
	return out
}

// Get gives a model. Its list of versions is shared and never changed in place: Apply replaces it.
func (v *View) Get(name domain.ModelID) (Model, bool) {
	i, ok := v.place(name)
	if !ok {
		return Model{}, false
	}
	return *v.list[i], true
}

func (m *Model) copy() Model {
	c := *m
	c.Versions = slices.Clone(m.Versions)
	return c
}

func (v *View) place(name domain.ModelID) (int, bool) {
	return slices.BinarySearchFunc(v.list, name, func(m *Model, n domain.ModelID) int { return strings.Compare(string(m.Name), string(n)) })
}

// Apply folds one event.
func (v *View) Apply(e event.Envelope) {
	switch d := e.Data.(type) {
	case *pool.ModelDeployed:
		i, ok := v.place(d.Model)
		if !ok {
			v.list = slices.Insert(v.list, i, &Model{Name: d.Model})
		}
		m := v.list[i]
		m.Serving, m.Retired = d.Version, false
		kept := slices.Clone(m.Versions[max(0, len(m.Versions)+1-pool.MaxVersions):])
		m.Versions = append(kept, Version{Version: d.Version, Run: d.Run, Kind: d.Kind, Weights: d.Weights, Layout: d.Layout, Data: d.Data,
			Where: d.Where, Members: d.Members, Deployed: e.Time,
			Rule: d.Rule, Temperature: d.Temperature, Copies: d.Copies})
	case *pool.ModelRolledBack:
		if i, ok := v.place(d.Model); ok {
			v.list[i].Serving = d.To
		}
	case *pool.ModelRetired:
		if i, ok := v.place(d.Model); ok {
			v.list[i].Retired = true
		}
	}
}
