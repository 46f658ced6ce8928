package gateway

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/domain/machine"
)

type restInput struct {
	MachinePath
	Body machine.Rest
}

func (g *Gateway) registerRest(api huma.API) {
	huma.Register(api, op("rest-machine", http.MethodPost, "/api/v1/machines/{id}/rest", "Say when a machine rests by itself; an empty body ends it"),
		func(ctx context.Context, in *restInput) (*machineBody, error) {
			return g.commandMachine(ctx, "rest", in.ID, machine.SetRest{Rest: in.Body})
		})
}
