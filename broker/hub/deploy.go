package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
)

// KindEnsemble is the kind of a deployed ensemble; a single model's kind is its spec's.
const KindEnsemble = "ensemble"

// deployment gives the command with everything it says of its run as the run stands. What the caller said already must
// be the same: he has looked at it, and the run has moved on.
func (f *fold) deployment(c pool.DeployModel) (pool.DeployModel, error) {
	op := "deploy run " + domain.Clip(string(c.Run), domain.MaxIDLength)
	s := f.runs[c.Run]
	if s == nil {
		return c, domain.NotFound(op, "there is no such run", "list them: tensorturn run list")
	}
	filled := pool.DeployModel{Model: c.Model, Run: c.Run, Where: c.Where, Copies: c.Copies, Data: s.Data.Blob}
	var err error
	if s.Ensemble != nil {
		err = deployEnsemble(op, s, &filled)
	} else {
		err = deployFused(op, s, &filled)
	}
	if err == nil && c.Weights != "" && c.Weights != filled.Weights {
		err = domain.Conflict(op, "its model is another one by now", "try again")
	}
	return filled, err
}

func deployFused(op string, s *run.State, c *pool.DeployModel) error {
	if !s.Phase.Ended() {
		return domain.Conflict(op, "it has not ended: its model still changes", "wait for it: tensorturn run watch "+string(s.ID))
	}
	if s.Merged == 0 || s.Base == "" {
		return domain.Conflict(op, fmt.Sprintf("it is %s and has merged no round", s.Phase), "see: tensorturn run replay "+string(s.ID))
	}
	c.Kind, c.Weights, c.Layout = s.Spec.Model.Kind, s.Base, s.Layout
	if s.Spec.Trainer == run.Process {
		c.Kind = run.Process
	}
	return nil
}

// deployEnsemble takes the members that voted, with the weights and the temperature of their vote.
func deployEnsemble(op string, s *run.State, c *pool.DeployModel) error {
	v := s.Ensemble.Vote
	if v == nil {
		return domain.Conflict(op, fmt.Sprintf("it is %s and its members have not voted", s.Phase), "see: tensorturn run show "+string(s.ID))
	}
	c.Kind, c.Rule, c.Temperature = KindEnsemble, v.Result.Rule, v.Result.Temperature
	var named strings.Builder
	for i, in := range v.Members {
		m := s.Member(in.Member)
		domain.Assert(m != nil && m.Weights != "", "a member that voted has weights")
		c.Members = append(c.Members, pool.Member{Number: m.Number, Weights: m.Weights, Layout: m.Layout, Weight: v.Result.Weights[i]})
		fmt.Fprintf(&named, "%d %s %s\n", m.Number, m.Weights, m.Layout)
	}
	// One digest names them all, so that two deployments are told apart by it as single models are.
	c.Weights = event.Digest([]byte(named.String()))
	c.Layout = c.Weights
	return nil
}

// Deployment says what deploying a run would record, as the log stands.
func (s *Service) Deployment(ctx context.Context, c pool.DeployModel) (filled pool.DeployModel, err error) {
	rerr := s.Read(ctx, func(core *Core) { filled, err = core.fold.deployment(c) })
	if rerr != nil {
		return filled, rerr
	}
	return filled, err
}

// deployed lists the blobs of every version that can still be asked for, by name and number.
func (f *fold) deployed() []domain.Digest {
	if f.pool == nil {
		return nil
	}
	var names []domain.ModelID
	for name := range f.pool.Models {
		names = append(names, name)
	}
	slices.Sort(names)
	var out []domain.Digest
	for _, name := range names {
		for _, v := range f.pool.Models[name].Versions {
			out = append(out, v.Data)
			if len(v.Members) == 0 {
				out = append(out, v.Weights)
			}
			for _, m := range v.Members {
				out = append(out, m.Weights)
			}
		}
	}
	return out
}
