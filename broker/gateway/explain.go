package gateway

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/broker/hub"
	"tensorturn/domain"
	"tensorturn/domain/forecast"
	"tensorturn/domain/machine"
	"tensorturn/domain/plan"
	"tensorturn/domain/run"
)

// Explainer says what a run would be on the pool as it is. The hub's Service is one.
type Explainer interface {
	Explain(ctx context.Context, w hub.Wish) (hub.Explanation, error)
	// Idle says for each slot of a machine without a lease why it has none.
	Idle(ctx context.Context, m domain.MachineID) []plan.Place
}

// TryRun is the body of POST /api/v1/runs/explain: a run that is only thought of. Its data need not be stored.
type TryRun struct {
	Spec   run.Spec      `json:"spec"`
	Data   run.Dataset   `json:"data"`
	Params int64         `json:"params,omitempty" minimum:"0" doc:"parameters to reckon with, where the spec does not tell them"`
	Hub    forecast.Link `json:"hub,omitempty" doc:"the hub's own links in bytes per second, where they are known"`
}

type (
	explainIn struct {
		RunPath
		HubUp   float64 `query:"hub_up" minimum:"0" doc:"what the hub takes in, in bytes per second, where it is known"`
		HubDown float64 `query:"hub_down" minimum:"0" doc:"what the hub sends, in bytes per second, where it is known"`
	}
	explainBody struct{ Body hub.Explanation }
)

func (g *Gateway) registerExplain(api huma.API) {
	huma.Register(api, op("try-run", http.MethodPost, "/api/v1/runs/explain", "Say what a run would be on the pool as it is: who takes part and why, what a round costs. Nothing is started"),
		func(ctx context.Context, in *struct{ Body TryRun }) (*explainBody, error) {
			b := in.Body
			spec, err := run.Resolve(b.Spec, b.Data)
			if err != nil {
				return nil, g.problemOf(err)
			}
			return g.explain(ctx, hub.Wish{Spec: &spec, Data: b.Data, Params: b.Params, Hub: b.Hub})
		})
	huma.Register(api, op("explain-run", http.MethodGet, "/api/v1/runs/{id}/explain", "Say for every machine whether it takes part in a run and why, what a round costs, and what would raise the share of time that computes"),
		func(ctx context.Context, in *explainIn) (*explainBody, error) {
			r, err := g.showRun("explain", in.ID)
			if err != nil {
				return nil, err
			}
			return g.explain(ctx, hub.Wish{Run: r.Body.ID, Hub: forecast.Link{Up: in.HubUp, Down: in.HubDown}})
		})
}

func (g *Gateway) explain(ctx context.Context, w hub.Wish) (*explainBody, error) {
	for _, rate := range []float64{w.Hub.Up, w.Hub.Down} {
		if !(rate >= 0 && rate <= machine.MaxScore) { // a query may name infinity, and what is no number
			return nil, g.problemOf(domain.Invalid("explain", fmt.Sprintf("the hub's link has %v bytes per second", rate), fmt.Sprintf("give 0 to %g, or leave it out", float64(machine.MaxScore))))
		}
	}
	e, err := g.cfg.Explain.Explain(ctx, w)
	if err != nil {
		return nil, g.problemOf(err)
	}
	return &explainBody{Body: e}, nil
}
