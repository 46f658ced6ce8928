package gateway

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/domain/machine"
)

// BenchRequest says how a machine shall be measured.
type BenchRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"200"`
	Anew   bool   `json:"anew,omitempty" doc:"what it did before does not count any more, as after a change of hardware"`
}

type benchInput struct {
	MachinePath
	Body *BenchRequest // may be left out
}

func (g *Gateway) registerBench(api huma.API) {
	huma.Register(api, op("bench-machine", http.MethodPost, "/api/v1/machines/{id}/bench", "Have a machine measured once more, when it has nothing else to do"),
		func(ctx context.Context, in *benchInput) (*machineBody, error) {
			var wish BenchRequest
			if in.Body != nil {
				wish = *in.Body
			}
			return g.commandMachine(ctx, "bench", in.ID, machine.AskBench{Reason: wish.Reason, Anew: wish.Anew})
		})
}
