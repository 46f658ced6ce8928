package gateway

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/projections/fleet"
)

// PauseRequest says which slots of a machine are paused or work again: those of one GPU, or all.
type PauseRequest struct {
	Reason string `json:"reason,omitempty" maxLength:"200"`
	GPU    *int   `json:"gpu,omitempty" minimum:"0" doc:"index of one GPU, as the machine last told it; left out: every slot"`
}

type pauseInput struct {
	MachinePath
	Body *PauseRequest // may be left out
}

func (g *Gateway) registerPauses(api huma.API) {
	for _, c := range []struct {
		verb, summary string
		command       func(slots []int, reason string) machine.Command
	}{
		{"pause", "Let a machine, or one GPU, contribute what it has trained and get no more, until resumed", func(s []int, r string) machine.Command {
			return machine.Pause{Slots: s, Reason: r}
		}},
		{"unpause", "End the owner's pause of a machine, or of one GPU", func(s []int, _ string) machine.Command { return machine.Unpause{Slots: s} }},
	} {
		huma.Register(api, op(c.verb+"-machine", http.MethodPost, "/api/v1/machines/{id}/"+c.verb, c.summary),
			func(ctx context.Context, in *pauseInput) (*machineBody, error) {
				m, err := g.findMachine(c.verb, in.ID)
				if err != nil {
					return nil, g.problemOf(err)
				}
				var wish PauseRequest
				if in.Body != nil {
					wish = *in.Body
				}
				slots, err := g.slotsOf(c.verb, m, wish.GPU)
				if err != nil {
					return nil, g.problemOf(err)
				}
				return g.commandMachine(ctx, c.verb, string(m.ID), c.command(slots, wish.Reason))
			})
	}
}

// slotsOf gives the slots that compute on a GPU, nil for every slot.
func (g *Gateway) slotsOf(verb string, m fleet.Machine, gpu *int) ([]int, error) {
	if gpu == nil {
		return nil, nil
	}
	said, _ := g.cfg.Agents.Telemetry(m.ID)
	var slots []int
	for i := range m.Slots {
		if on := said.Vitals.GPU(i); on != nil && on.Index == *gpu {
			slots = append(slots, i)
		}
	}
	if slots == nil {
		return nil, domain.NotFound(fmt.Sprintf("%s gpu %d of machine %s", verb, *gpu, m.ID), "no slot of it computes on such a GPU, as far as the machine has said since the hub started",
			"see: tensorturn machine show "+string(m.ID))
	}
	return slots, nil
}
