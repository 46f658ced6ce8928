package gateway

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/broker/gateway/v2"
	"tensorturn/broker/hub"
	"tensorturn/broker/inference"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
	"tensorturn/domain/vote"
	"tensorturn/projections/models"
	"tensorturn/projections/runs"
)

// DeployModel is the body of POST /api/v1/models.
type DeployModel struct {
	Run  string         `json:"run" maxLength:"80" doc:"the run whose result is deployed"`
	Name domain.ModelID `json:"name" maxLength:"48" doc:"the name in URLs; a name that exists gets its next version"`
	On   pool.Where     `json:"on,omitempty" enum:"hub,agents" doc:"which processes answer; when absent the hub, or agents for what only an owner's program can run"`
	// No maximum here: the pool's own refusal names the limit.
	Copies int `json:"copies,omitempty" minimum:"0" doc:"machines that hold each model, with on agents; 2 when absent"`
}

// RollBack is the body of POST /api/v1/models/{name}/rollback.
type RollBack struct {
	To int `json:"to,omitempty" minimum:"0" doc:"the version that shall answer; the newest before the present one when absent"`
}

// ModelPath is the deployed model of a path; huma fills embedded structs only when they are exported.
type ModelPath struct {
	Name domain.ModelID `path:"name" maxLength:"48"`
}

type modelBody struct{ Body models.Model }

func (g *Gateway) registerModels(api huma.API) {
	huma.Register(api, op("list-models", http.MethodGet, "/api/v1/models", "List deployed models by name"),
		func(_ context.Context, in *Page) (*listBody[models.Model], error) {
			var all []models.Model
			g.cfg.Views.Engine.Read(func(uint64) { all = g.cfg.Views.Models.List() })
			for i := range all {
				g.fillHeld(&all[i])
			}
			return pageOf(g, *in, "/api/v1/models", all, func(m models.Model) string { return string(m.Name) })
		})
	huma.Register(api, op("deploy-model", http.MethodPost, "/api/v1/models", "Deploy a run's result under a name"),
		func(ctx context.Context, in *struct{ Body DeployModel }) (*modelBody, error) {
			return g.deployModel(ctx, in.Body)
		})
	huma.Register(api, op("show-model", http.MethodGet, "/api/v1/models/{name}", "Show a deployed model and its versions"),
		func(_ context.Context, in *ModelPath) (*modelBody, error) { return g.showModel(in.Name) })
	huma.Register(api, op("roll-back-model", http.MethodPost, "/api/v1/models/{name}/rollback", "Let another kept version answer"),
		func(ctx context.Context, in *struct {
			ModelPath
			Body *RollBack // may be left out
		}) (*modelBody, error) {
			c := pool.RollBackModel{Model: in.Name}
			if in.Body != nil {
				c.To = in.Body.To
			}
			if err := g.do(ctx, hub.Target{Kind: event.KindPool, ID: pool.ID, Command: c}); err != nil {
				return nil, err
			}
			return g.showModel(in.Name)
		})
	huma.Register(api, op("retire-model", http.MethodDelete, "/api/v1/models/{name}", "Take a model out of service"),
		func(ctx context.Context, in *ModelPath) (*struct{}, error) {
			return nil, g.do(ctx, hub.Target{Kind: event.KindPool, ID: pool.ID, Command: pool.RetireModel{Model: in.Name}})
		})
}

// deployModel loads the model first: what is missing or damaged is refused before it answers for anybody.
func (g *Gateway) deployModel(ctx context.Context, in DeployModel) (*modelBody, error) {
	r, err := g.findRun("deploy", in.Run)
	if err != nil {
		return nil, g.problemOf(err)
	}
	switch {
	case in.On != "":
	case r.Spec.Trainer == run.Process:
		in.On = pool.WhereAgents
	default:
		in.On = pool.WhereHub
	}
	b := g.cfg.Inference(in.On)
	if b == nil {
		return nil, g.problemOf(domain.Conflict("deploy run "+string(r.ID), "nobody can answer for models on the "+string(in.On)+" yet", "leave --on out: the hub answers"))
	}
	c, err := g.cfg.Hub.Deployment(ctx, pool.DeployModel{Model: in.Name, Run: r.ID, Where: in.On, Copies: in.Copies})
	if err != nil {
		return nil, g.problemOf(err)
	}
	v := models.Version{Run: c.Run, Weights: c.Weights, Layout: c.Layout, Data: c.Data, Members: c.Members, Rule: c.Rule, Temperature: c.Temperature, Copies: c.Copies}
	if err := b.Check(ctx, versionOf(in.Name, v, r)); err != nil {
		return nil, g.problemOf(err)
	}
	if err := g.do(ctx, hub.Target{Kind: event.KindPool, ID: pool.ID, Command: c}); err != nil {
		return nil, err
	}
	return g.showModel(in.Name)
}

func (g *Gateway) showModel(name domain.ModelID) (*modelBody, error) {
	m, ok := g.findModel(name)
	if !ok {
		return nil, g.problemOf(noSuch("show model "+domain.Clip(string(name), domain.MaxIDLength), "model"))
	}
	g.fillHeld(&m)
	return &modelBody{Body: m}, nil
}

// holder is a Backend that knows which machines have a version ready.
type holder interface {
	Held(v *inference.Version) inference.Held
}

// fillHeld asks where the version that answers is ready. What cannot be asked stays untold.
func (g *Gateway) fillHeld(m *models.Model) {
	v, ok := m.Find(0)
	if !ok || m.Retired || v.Where != pool.WhereAgents {
		return
	}
	h, ok := g.cfg.Inference(v.Where).(holder)
	if !ok {
		return
	}
	if joined, err := g.version(*m, v); err == nil {
		held := models.Held(h.Held(joined))
		m.Held = &held
	}
}

func (g *Gateway) findModel(name domain.ModelID) (m models.Model, ok bool) {
	g.cfg.Views.Engine.Read(func(uint64) { m, ok = g.cfg.Views.Models.Get(name) })
	return m, ok
}

// version joins a deployed version with its run.
func (g *Gateway) version(m models.Model, v models.Version) (out *inference.Version, err error) {
	var r runs.Run
	ok := false
	g.cfg.Views.Engine.Read(func(uint64) { r, ok = g.cfg.Views.Runs.Get(v.Run) })
	if !ok {
		return nil, domain.Integrity("serve model "+string(m.Name), "its run "+string(v.Run)+" is not in the log", "")
	}
	return versionOf(m.Name, v, r), nil
}

func versionOf(name domain.ModelID, v models.Version, r runs.Run) *inference.Version {
	out := &inference.Version{Model: name, Number: v.Version, Run: v.Run, Spec: r.Spec, Data: r.Data, Weights: v.Weights, Layout: v.Layout,
		Vote: vote.Combiner{Rule: v.Rule, Temperature: v.Temperature}, Copies: v.Copies}
	for _, m := range v.Members {
		out.Members = append(out.Members, inference.Member{Number: m.Number, Weights: m.Weights, Layout: m.Layout})
		out.Vote.Weights = append(out.Vote.Weights, m.Weight)
	}
	return out
}

// OnAgents lists the versions that answer now, on agents, by the names of their models.
func (g *Gateway) OnAgents() []*inference.Version {
	var all []models.Model
	g.cfg.Views.Engine.Read(func(uint64) { all = g.cfg.Views.Models.List() })
	var out []*inference.Version
	for _, m := range all {
		v, ok := m.Find(0)
		if !ok || m.Retired || v.Where != pool.WhereAgents {
			continue
		}
		joined, err := g.version(m, v)
		if err != nil {
			g.cfg.Logger.Error().Err(err).Msg("deployed model not placed")
			continue
		}
		out = append(out, joined)
	}
	return out
}

// newV2 makes the API that deployed models are asked by.
func (g *Gateway) newV2() *v2.API {
	return v2.New(v2.Config{Identify: g.asker, Model: g.findModel, Version: g.version, Backend: g.cfg.Inference, Ready: g.inferenceReady,
		Counts: g.cfg.Counts, Record: g.recordUsage, Server: g.cfg.Version, Now: g.cfg.Now, Logger: g.cfg.Logger})
}

// asker finds whom a secret belongs to. Refusals tell what a bearer may do.
func (g *Gateway) asker(secret string) (v2.Caller, *v2.Fault) {
	if secret != "" && g.cfg.Operator(secret) {
		return v2.Caller{Role: pool.RoleOperator}, nil
	}
	k, fault := g.keyOf(secret)
	if fault != nil {
		why := fault.Why
		if fault.Reason == reasonMissing {
			why += ": send it as Authorization: Bearer KEY; the pool's owner makes one with: tensorturn key create --model NAME"
		}
		return v2.Caller{}, &v2.Fault{Reason: fault.Reason, Why: why}
	}
	return v2.Caller{Role: k.Role, Key: k.ID, Model: k.Model, Rate: k.Rate, Per: k.Per}, nil
}

// inferenceReady is open to everybody: it says no more than that. A hub that takes no commands still answers for models.
func (g *Gateway) inferenceReady() error {
	if g.base.Err() != nil {
		return fmt.Errorf("the hub is stopping")
	}
	return nil
}

// recordUsage hands digests to the hub, which writes them into the log.
func (g *Gateway) recordUsage(ctx context.Context, counts []pool.InferenceCounted) error {
	return g.cfg.Hub.Do(ctx, hub.Do{Command: domain.CommandID(g.cfg.NewID("c")), Actor: "hub",
		Targets: []hub.Target{{Kind: event.KindPool, ID: pool.ID, Command: pool.CountInference{Counts: counts}}}})
}
