package gateway

import (
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/broker/hub"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/projections/fleet"
)

// MachinePath is the machine of a path, by id, name, or the beginning of an id.
type MachinePath struct {
	ID string `path:"id" maxLength:"80"`
}

type (
	machineReason struct {
		MachinePath
		Body *Reasoned // may be left out
	}
	machineBody struct{ Body fleet.Machine }
)

func (g *Gateway) registerMachines(api huma.API) {
	g.registerPauses(api)
	g.registerLabels(api)
	g.registerBench(api)
	g.registerRest(api)
	huma.Register(api, op("list-machines", http.MethodGet, "/api/v1/machines", "List machines, oldest first"),
		func(ctx context.Context, in *Page) (*listBody[fleet.Machine], error) {
			var all []fleet.Machine
			g.cfg.Views.Engine.Read(func(uint64) { all = g.cfg.Views.Fleet.List() })
			g.measured(ctx, all)
			return pageOf(g, *in, "/api/v1/machines", all, func(m fleet.Machine) string { return string(m.ID) })
		})
	huma.Register(api, op("show-machine", http.MethodGet, "/api/v1/machines/{id}", "Show a machine"),
		func(ctx context.Context, in *MachinePath) (*machineBody, error) {
			m, err := g.showMachine(ctx, verbShow, in.ID)
			if err == nil {
				g.idle(ctx, &m.Body)
			}
			return m, err
		})
	for _, c := range []struct {
		verb, summary string
		command       func(reason string) machine.Command
	}{
		{"drain", "Let a machine contribute what it has trained and get no more, until resumed", func(r string) machine.Command { return machine.Drain{Reason: r} }},
		{"resume", "End a drain or a quarantine", func(string) machine.Command { return machine.Resume{} }},
		{"revoke", "End a machine's membership for ever", func(r string) machine.Command { return machine.Revoke{Reason: r} }},
	} {
		huma.Register(api, op(c.verb+"-machine", http.MethodPost, "/api/v1/machines/{id}/"+c.verb, c.summary),
			func(ctx context.Context, in *machineReason) (*machineBody, error) {
				return g.commandMachine(ctx, c.verb, in.ID, c.command(in.Body.reason()))
			})
	}
}

// commandMachine has the hub decide the command on the machine that key names, and answers with what the machine is then.
func (g *Gateway) commandMachine(ctx context.Context, verb, key string, c machine.Command) (*machineBody, error) {
	m, err := g.findMachine(verb, key)
	if err != nil {
		return nil, g.problemOf(err)
	}
	id := string(m.ID) // a revoked machine is not found by its name any more
	if err := g.do(ctx, hub.Target{Kind: event.KindMachine, ID: id, Command: c}); err != nil {
		return nil, err
	}
	return g.showMachine(ctx, verb, id)
}

// showMachine answers with the machine; verb is what the caller wants of it.
func (g *Gateway) showMachine(ctx context.Context, verb, key string) (*machineBody, error) {
	m, err := g.findMachine(verb, key)
	if err != nil {
		return nil, g.problemOf(err)
	}
	one := []fleet.Machine{m}
	g.measured(ctx, one)
	return &machineBody{Body: one[0]}, nil
}

// idle adds why slots have no work.
func (g *Gateway) idle(ctx context.Context, m *fleet.Machine) {
	why := map[domain.SlotID]string{}
	for _, p := range g.cfg.Explain.Idle(ctx, m.ID) {
		why[p.Slot] = p.Reason
	}
	for i := range m.Slots {
		if m.Slots[i].Run == "" {
			m.Slots[i].Idle = why[m.Slots[i].Slot]
		}
	}
}

// measured adds what the machines said of themselves, and what was heard of them.
func (g *Gateway) measured(ctx context.Context, ms []fleet.Machine) {
	contested, _ := g.cfg.Agents.Contested(ctx) // a hub that stops names none
	for i := range ms {
		m := &ms[i]
		said, _ := g.cfg.Agents.Telemetry(m.ID)
		m.Sandbox, m.Vitals, m.Contested = said.Sandbox, said.Vitals, slices.Contains(contested, m.ID)
		if m.BenchWanted > 0 { // what an agent said before it was heard that none is wanted any more is over
			m.Unmeasured = said.Unmeasured
		}
	}
}
