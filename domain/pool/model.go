package pool

import (
	"fmt"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/placement"
	"tensorturn/domain/vote"
)

// Where says which processes answer for a model.
type Where string

// The places of inference.
const (
	WhereHub    Where = "hub"    // the hub's own process
	WhereAgents Where = "agents" // agents that hold the model
)

// Limits of deployed models.
const (
	MaxModels   = 64 // names, retired ones too: their versions go on counting
	MaxVersions = 8  // newest versions of a name that can still be asked for and rolled back to; older ones are forgotten
)

// The names of the facts about deployed models. They are for ever.
const (
	NameModelDeployed    = "model.deployed"
	NameModelRolledBack  = "model.reverted"
	NameModelRetired     = "model.retired"
	NameInferenceCounted = "inference.counted"
)

// The facts about deployed models.
type (
	// ModelDeployed publishes a run's result under a name, as its next version. It is the one that answers from now on.
	ModelDeployed struct {
		Model   domain.ModelID `msgpack:"model"`
		Version int            `msgpack:"version"` // 1, 2, ...: never used twice under one name
		Run     domain.RunID   `msgpack:"run"`
		Kind    string         `msgpack:"kind"`              // the run's model kind ("mlp"), or "ensemble"
		Weights domain.Digest  `msgpack:"weights"`           // manifest of the weights; of an ensemble, the digest of its members' list
		Layout  domain.Digest  `msgpack:"layout"`            // of the tensors' names, types and shapes
		Data    domain.Digest  `msgpack:"data"`              // manifest of the packed data: its statistics standardise inputs
		Where   Where          `msgpack:"where"`             // hub or agents
		Members []Member       `msgpack:"members,omitempty"` // of an ensemble, in the order of their numbers
		// Rule and Temperature of an ensemble are those of its run's vote.
		Rule        vote.Rule `msgpack:"rule,omitempty"`
		Temperature float64   `msgpack:"temperature,omitempty"`
		Copies      int       `msgpack:"copies,omitempty"` // machines that hold each model, on agents; 0 for placement.Copies
	}
	// Member is one model of a deployed ensemble.
	Member struct {
		Number  int           `msgpack:"number" json:"number"`
		Weights domain.Digest `msgpack:"weights" json:"weights"`
		Layout  domain.Digest `msgpack:"layout" json:"layout"`
		Weight  float64       `msgpack:"weight,omitempty" json:"weight"` // in the vote
	}
	// ModelRolledBack lets an earlier version answer again.
	ModelRolledBack struct {
		Model domain.ModelID `msgpack:"model"`
		From  int            `msgpack:"from"`
		To    int            `msgpack:"to"`
	}
	// ModelRetired takes a name out of service. A later deployment of it is the next version.
	ModelRetired struct {
		Model domain.ModelID `msgpack:"model"`
	}
)

func (ModelDeployed) EventName() string   { return NameModelDeployed }
func (ModelRolledBack) EventName() string { return NameModelRolledBack }
func (ModelRetired) EventName() string    { return NameModelRetired }

// Line renders the fact.
func (e ModelDeployed) Line() string {
	members := ""
	if n := len(e.Members); n > 0 {
		members = fmt.Sprintf(" of %d members", n)
	}
	copies := ""
	if e.Copies > 0 {
		copies = fmt.Sprintf(", %d of each", e.Copies)
	}
	return fmt.Sprintf("model %s version %d is %s%s %s of run %s, on the %s%s", e.Model, e.Version, e.Kind, members, e.Weights.Short(), e.Run, e.Where, copies)
}

// Line renders the fact.
func (e ModelRolledBack) Line() string {
	return fmt.Sprintf("model %s went from version %d back to %d", e.Model, e.From, e.To)
}

// Line renders the fact.
func (e ModelRetired) Line() string { return fmt.Sprintf("model %s retired", e.Model) }

// The commands about deployed models. The hub checks what they say of a run before the pool decides.
type (
	DeployModel struct {
		Model   domain.ModelID
		Run     domain.RunID
		Kind    string
		Weights domain.Digest
		Layout  domain.Digest
		Data    domain.Digest
		Where   Where
		Members []Member

		Rule        vote.Rule
		Temperature float64
		Copies      int
	}
	// RollBackModel goes to version To, any that is kept; 0 is the newest before the present one.
	RollBackModel struct {
		Model domain.ModelID
		To    int
	}
	RetireModel struct{ Model domain.ModelID }
)

func (DeployModel) isCommand()   {}
func (RollBackModel) isCommand() {}
func (RetireModel) isCommand()   {}

// Model is a deployed name as the hub knows it.
type Model struct {
	ID       domain.ModelID
	Count    int // versions ever deployed
	Serving  int // the version that answers
	Retired  bool
	Versions []Version // the newest MaxVersions, oldest first
}

// Version is what one version is made of.
type Version struct {
	Number  int
	Run     domain.RunID
	Weights domain.Digest
	Data    domain.Digest
	Where   Where
	Members []Member
	Copies  int
}

// find gives the version of the number, nil when it is forgotten or never was.
func (m Model) find(number int) *Version {
	i := slices.IndexFunc(m.Versions, func(v Version) bool { return v.Number == number })
	if i < 0 {
		return nil
	}
	return &m.Versions[i]
}

func decideDeploy(s *State, c DeployModel) ([]event.Data, error) {
	op := "deploy run " + domain.Clip(string(c.Run), domain.MaxIDLength)
	if !domain.ValidID(string(c.Model)) {
		return nil, domain.Invalid(op, fmt.Sprintf("%q is not a name for a model", domain.Clip(string(c.Model), 80)),
			fmt.Sprintf("use 1 to %d lower-case letters, digits, '-' or '_': the name stands in URLs", domain.MaxIDLength))
	}
	if c.Where != WhereHub && c.Where != WhereAgents {
		return nil, domain.Invalid(op, fmt.Sprintf("%q is no place of inference", domain.Clip(string(c.Where), 40)), "use --on hub or --on agents")
	}
	if c.Copies < 0 || c.Copies > placement.MaxCopies || c.Copies > 0 && c.Where != WhereAgents {
		return nil, domain.Invalid(op, fmt.Sprintf("%d copies on the %s make no sense", c.Copies, c.Where), fmt.Sprintf("with --on agents, give 1 to %d copies of each model", placement.MaxCopies))
	}
	for _, d := range []domain.Digest{c.Weights, c.Layout, c.Data} {
		if _, err := domain.ParseDigest(string(d)); err != nil {
			return nil, domain.Invalid(op, "its weights, layout or data have no digest", "")
		}
	}
	m, ok := s.Models[c.Model]
	if !ok && len(s.Models) >= MaxModels {
		return nil, domain.Conflict(op, fmt.Sprintf("the pool has %d models, the limit", len(s.Models)), "deploy it under a name that exists: tensorturn model list")
	}
	if v := m.find(m.Serving); v != nil && !m.Retired && v.Run == c.Run && v.Weights == c.Weights && v.Where == c.Where && v.Copies == c.Copies && v.Number == m.Count {
		return nil, nil // the same command again
	}
	return []event.Data{&ModelDeployed{Model: c.Model, Version: m.Count + 1, Run: c.Run, Kind: c.Kind, Weights: c.Weights,
		Layout: c.Layout, Data: c.Data, Where: c.Where, Members: c.Members, Rule: c.Rule, Temperature: c.Temperature, Copies: c.Copies}}, nil
}

func decideRollBack(s *State, c RollBackModel) ([]event.Data, error) {
	op := "roll back model " + domain.Clip(string(c.Model), domain.MaxIDLength)
	m, err := s.deployed(op, c.Model)
	if err != nil {
		return nil, err
	}
	if c.To == 0 {
		for _, v := range m.Versions {
			if v.Number < m.Serving {
				c.To = v.Number
			}
		}
		if c.To == 0 {
			return nil, domain.Conflict(op, fmt.Sprintf("no version before %d is kept", m.Serving), "name the version that shall answer, a later one too, with --to; they are in: tensorturn model list")
		}
	}
	if c.To == m.Serving {
		return nil, nil
	}
	if m.find(c.To) == nil {
		return nil, domain.NotFound(op, fmt.Sprintf("version %d is not there; the newest %d versions are kept", c.To, MaxVersions), "see tensorturn model list")
	}
	return []event.Data{&ModelRolledBack{Model: c.Model, From: m.Serving, To: c.To}}, nil
}

func decideRetire(s *State, c RetireModel) ([]event.Data, error) {
	m, ok := s.Models[c.Model]
	if ok && m.Retired {
		return nil, nil
	}
	if _, err := s.deployed("retire model "+domain.Clip(string(c.Model), domain.MaxIDLength), c.Model); err != nil {
		return nil, err
	}
	return []event.Data{&ModelRetired{Model: c.Model}}, nil
}

func (s *State) deployed(op string, id domain.ModelID) (Model, error) {
	m, ok := s.Models[id]
	if !ok || m.Retired {
		return m, domain.NotFound(op, "no model of this name is deployed", "see tensorturn model list")
	}
	return m, nil
}

func (s *State) deploy(d *ModelDeployed) {
	m := s.Models[d.Model]
	m.ID, m.Count, m.Serving, m.Retired = d.Model, d.Version, d.Version, false
	m.Versions = append(m.Versions, Version{Number: d.Version, Run: d.Run, Weights: d.Weights, Data: d.Data, Where: d.Where, Members: d.Members, Copies: d.Copies})
	if n := len(m.Versions) - MaxVersions; n > 0 {
		m.Versions = slices.Delete(m.Versions, 0, n)
	}
	s.Models[d.Model] = m
}

func (s *State) rollBack(d *ModelRolledBack) {
	m := s.Models[d.Model]
	m.Serving = d.To
	s.Models[d.Model] = m
}

func (s *State) retire(d *ModelRetired) {
	m := s.Models[d.Model]
	m.Retired = true
	s.Models[d.Model] = m
}
