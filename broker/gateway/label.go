package gateway

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

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
			return g.commandMachine(ctx, "label", in.ID, machine.Label{Set: in.Body.Set, Remove: in.Body.Remove})
		})
}
