package gateway

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/broker/hub"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
)

type restInput struct {
	MachinePath
	Body machine.Rest
}

func (g *Gateway) registerRest(api huma.API) {
	huma.Register(api, op("rest-machine", http.MethodPost, "/api/v1/machines/{id}/rest", "Say when a machine rests by itself; an empty body ends it"),
		func(ctx context.Context, in *restInput) (*machineBody, error) {
			const verb = "rest"
			m, err := g.showMachine(ctx, verb, in.ID)
			if err != nil {
				return nil, err
			}
			if err := g.do(ctx, hub.Target{Kind: event.KindMachine, ID: string(m.Body.ID), Command: machine.SetRest{Rest: in.Body}}); err != nil {
				return nil, err
			}
			return g.showMachine(ctx, verb, string(m.Body.ID))
		})
}
