package main

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/projections/fleet"
)

func machineCommand(a *app) *cobra.Command {
	return group("machine", "see and steer the machines of the pool",
		machineList(a), machineShow(a), machineTop(a), machineBench(a), machineRest(a),
		machineVerb(a, "drain", "let a machine finish what it trains, contribute it, and get no more"),
		machinePause(a, "pause", "pause", "let a machine, or one GPU of it, finish what it trains, contribute it, and get no more"),
		machinePause(a, "resume", "unpause", "end a pause, a drain or a quarantine"),
		machineLabel(a), machineRevoke(a))
}

func machineList(a *app) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "list machines and what their slots hold", Args: args(),
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			ms, err := cl.machines(c.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.object(ms)
			}
			rows := [][]string{}
			for _, m := range ms {
				rows = append(rows, []string{m.Name, string(m.ID), standing(m), holds(m), short(time.Since(m.Since))})
			}
			a.table([]string{"NAME", "MACHINE", "STATE", "SLOTS", "SINCE"}, rows)
			return nil
		}}
}

func (c *client) machines(ctx context.Context) ([]fleet.Machine, error) {
	return pages[fleet.Machine](ctx, c, "/api/v1/machines")
}

func standing(m fleet.Machine) string {
	s := string(m.Standing)
	if m.Stopped {
		s += ", its agent was stopped"
	}
	if m.Draining && m.Standing != machine.Revoked {
		s += ", draining"
	}
	if m.Quarantined != "" {
		s += ", quarantined"
	}
	if m.Contested {
		s += ", two agents with one key"
	}
	if len(m.Slow) > 0 {
		s += ", slow"
	}
	paused := 0
	for _, slot := range m.Slots {
		if slot.Paused != "" {
			paused++
		}
	}
	switch {
	case paused > 0 && paused == len(m.Slots):
		s += ", paused"
	case paused > 0:
		s += ", partly paused"
	}
	return s
}

// holds says for each slot what it holds.
func holds(m fleet.Machine) string {
	out := make([]string, len(m.Slots))
	for i, s := range m.Slots {
		out[i] = "idle"
		if s.Run != "" {
			out[i] = string(s.Unit) + " " + string(s.Run)
		}
		switch {
		case s.Paused != "":
			out[i] += " (paused: " + s.Paused + ")"
		case s.Idle != "":
			out[i] += ": " + s.Idle
		}
	}
	return strings.Join(out, "; ")
}

func machineShow(a *app) *cobra.Command {
	return &cobra.Command{Use: "show MACHINE", Short: "show a machine, by id or name", Args: args("MACHINE"),
		RunE: func(c *cobra.Command, got []string) error {
			m, err := a.machine(c.Context(), got[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.object(m)
			}
			rows := [][]string{{"name", m.Name}, {"id", string(m.ID)}, {"state", standing(m)}, {"enrolled", m.Enrolled.Format(time.RFC3339)},
				{"since", short(time.Since(m.Since))}, {"restarts", itoa(m.Restarts)}, {"key", m.NKey}, {"account", m.Account}}
			if m.Quarantined != "" {
				rows = append(rows, []string{"quarantined", m.Quarantined})
			}
			if m.Sandbox != "" {
				rows = append(rows, []string{"sandbox", m.Sandbox})
			}
			if len(m.Labels) > 0 {
				rows = append(rows, []string{"labels", domain.LabelText(m.Labels)})
			}
			rows = append(rows, vitalsOf(m)...)
			if m.Rest != nil {
				rows = append(rows, []string{"pauses", restWord(m)})
			}
			rows = append(rows, benchOf(m)...)
			for _, s := range m.Slots {
				rows = append(rows, []string{"slot " + string(s.Slot), holds(fleet.Machine{Slots: []fleet.Slot{s}})})
			}
			a.table([]string{"FIELD", "VALUE"}, rows)
			return nil
		}}
}

func (a *app) machine(ctx context.Context, idOrName string) (fleet.Machine, error) {
	var m fleet.Machine
	cl, err := a.client()
	if err == nil {
		err = cl.call(ctx, http.MethodGet, "/api/v1/machines/"+url.PathEscape(idOrName), nil, &m)
	}
	return m, err
}

// machineVerb is a command that tells a machine something and prints it after.
func machineVerb(a *app, verb, help string) *cobra.Command {
	return &cobra.Command{Use: verb + " MACHINE", Short: help, Args: args("MACHINE"),
		RunE: func(c *cobra.Command, got []string) error {
			return a.tellMachine(c.Context(), verb, got[0], "")
		}}
}

func (a *app) tellMachine(ctx context.Context, verb, name, reason string) error {
	cl, err := a.client()
	if err != nil {
		return err
	}
	var m fleet.Machine
	if err := cl.call(ctx, http.MethodPost, "/api/v1/machines/"+url.PathEscape(name)+"/"+verb, gateway.Reasoned{Reason: reason}, &m); err != nil {
		return err
	}
	if a.json {
		return a.object(m)
	}
	a.say("%s (%s) is %s", m.Name, m.ID, standing(m))
	return nil
}

// machinePause is a command for a machine or one of its GPUs; verb is the API's for one GPU.
func machinePause(a *app, name, verb, help string) *cobra.Command {
	gpu := -1
	var reason string
	c := &cobra.Command{Use: name + " MACHINE", Short: help, Args: args("MACHINE"),
		RunE: func(c *cobra.Command, got []string) error {
			if !c.Flags().Changed("gpu") {
				return a.tellMachine(c.Context(), name, got[0], reason)
			}
			if gpu < 0 {
				return domain.Invalid(name+" "+got[0], "a GPU has a number from 0", "see: tensorturn machine show "+got[0])
			}
			cl, err := a.client()
			if err != nil {
				return err
			}
			var m fleet.Machine
			if err := cl.call(c.Context(), http.MethodPost, "/api/v1/machines/"+url.PathEscape(got[0])+"/"+verb, gateway.PauseRequest{Reason: reason, GPU: &gpu}, &m); err != nil {
				return err
			}
			if a.json {
				return a.object(m)
			}
			a.say("%s (%s): %s", m.Name, m.ID, holds(m))
			return nil
		}}
	c.Flags().IntVar(&gpu, "gpu", -1, "only the slots of this GPU, by its index in machine show")
	c.Flags().StringVar(&reason, "reason", "", "why, for the log")
	return c
}

func machineRevoke(a *app) *cobra.Command {
	var yes bool
	var reason string
	c := &cobra.Command{Use: "revoke MACHINE", Short: "end a machine's membership for ever", Args: args("MACHINE"),
		RunE: func(c *cobra.Command, got []string) error {
			if !yes {
				return domain.Invalid("revoke "+got[0], "a revoked machine cannot come back under its key", "say it with --yes")
			}
			return a.tellMachine(c.Context(), "revoke", got[0], reason)
		}}
	c.Flags().BoolVar(&yes, "yes", false, "really")
	c.Flags().StringVar(&reason, "reason", "", "why, for the log")
	return c
}
