package gateway

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/broker/hub"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
)

// LabelRequest changes the owner's labels of a machine.
type LabelRequest struct {
	Set    map[string]string `json:"set,omitempty" doc:"labels to set, at most 32 of a machine"`
	Remove []string          `json:"remove,omitempty" maxItems:"32" doc:"keys of labels to remove"`
}

func (g *Gateway) registerLabels(api huma.API) {
	huma.Register(api, op("label-machine", http.MethodPost, "/api/v1/machines/{id}/label", "Set and remove labels, for requirements of runs"),
		func(ctx context.Context, in *struct {
			MachinePath
			Body LabelRequest
		}) (*machineBody, error) {
			m, err := g.showMachine(ctx, "label", in.ID)
			if err != nil {
				return nil, err
			}
			id := string(m.Body.ID)
			if err := g.do(ctx, hub.Target{Kind: event.KindMachine, ID: id, Command: machine.Label{Set: in.Body.Set, Remove: in.Body.Remove}}); err != nil {
				return nil, err
			}
			return g.showMachine(ctx, "label", id)
		})
}
