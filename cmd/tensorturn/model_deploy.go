package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/pool"
	"tensorturn/projections/models"
)

func modelDeploy(a *app) *cobra.Command {
	var name, on string
	var copies int
	c := &cobra.Command{Use: "deploy RUN --name NAME", Short: "let the hub or agents answer for a run's result, as an API with keys", Args: args("RUN"),
		Long: "Publishes the result of a run under a name, as its next version: the Open Inference Protocol V2 at /v2/models/NAME.\n" +
			"Requests under way finish on the version they began on. Bearers need a key: tensorturn key create --model NAME.",
		RunE: func(c *cobra.Command, got []string) error {
			switch {
			case name == "":
				return domain.Invalid("deploy model", "--name is missing", "give the name that shall stand in URLs: --name digits")
			case on != "" && on != string(pool.WhereHub) && on != string(pool.WhereAgents):
				return domain.Invalid("deploy model", fmt.Sprintf("--on is %q", domain.Clip(on, 40)), "give --on hub or --on agents")
			case copies < 0 || c.Flags().Changed("copies") && copies == 0:
				return domain.Invalid("deploy model", fmt.Sprintf("--copies is %d", copies), "give 1 or more")
			}
			cl, err := a.client()
			if err != nil {
				return err
			}
			var m models.Model
			in := gateway.DeployModel{Run: got[0], Name: domain.ModelID(name), On: pool.Where(on), Copies: copies}
			if err := cl.call(c.Context(), http.MethodPost, "/api/v1/models", in, &m); err != nil {
				return err
			}
			if a.json {
				return a.object(m)
			}
			v, _ := m.Find(0)
			a.print("%s/v2/models/%s", cl.ctx.URL, m.Name)
			a.say("version %d answers on the %s: %s of run %s", v.Version, v.Where, modelIs(v), v.Run)
			if m.Held != nil && m.Held.Able < v.Copies {
				a.say("warning: %d copies of each model are wanted, and %s may hold models now: the others come with machines that join or return", v.Copies, count(m.Held.Able, "connected machine"))
			}
			a.say("make a key for whoever asks: tensorturn key create --model %s", m.Name)
			return nil
		}}
	c.Flags().StringVar(&name, "name", "", "name in URLs; one that exists gets its next version")
	c.Flags().StringVar(&on, "on", "", "who answers: hub or agents (default: the hub, or agents for what only your own program can run)")
	c.Flags().IntVar(&copies, "copies", 0, "machines that hold each model, with --on agents (default: 2)")
	return c
}

// modelIs says what a version is.
func modelIs(v models.Version) string {
	if n := len(v.Members); n > 0 {
		return fmt.Sprintf("%s that vote by %s", count(n, "model"), v.Rule)
	}
	return v.Kind + " " + v.Weights.Short()
}

func modelList(a *app) *cobra.Command {
	return listing(a, "list deployed models and their versions", "/api/v1/models", []string{"MODEL", "VERSION", "STATE", "RUN", "WHAT", "ON", "HELD BY", "DEPLOYED"}, func(m models.Model) (rows [][]string) {
		for i := len(m.Versions) - 1; i >= 0; i-- {
			v := m.Versions[i]
			rows = append(rows, []string{string(m.Name), itoa(v.Version), modelState(m, v), string(v.Run), modelIs(v), string(v.Where), heldBy(m, v), v.Deployed.Format(time.RFC3339)})
		}
		return rows
	})
}

// heldBy says which machines have a version ready that answers on agents.
func heldBy(m models.Model, v models.Version) string {
	switch h := m.Held; {
	case h == nil || v.Version != m.Serving:
		return "-"
	case len(h.Machines) == 0:
		return "no machine holds it now"
	default:
		names := make([]string, len(h.Machines))
		for i, id := range h.Machines {
			names[i] = string(id)
		}
		if more := len(names) - maxTroubles; more > 0 {
			names = append(names[:maxTroubles], fmt.Sprintf("%d more", more))
		}
		said := strings.Join(names, ", ")
		if h.Ready < h.Models {
			said += fmt.Sprintf(" (%d of %d members)", h.Ready, h.Models)
		}
		return said
	}
}

// modelState says whether a version answers: the serving one to all requests, the others to those that name them.
func modelState(m models.Model, v models.Version) string {
	switch {
	case m.Retired:
		return "retired"
	case v.Version == m.Serving:
		return "serving"
	}
	return "kept"
}

func modelRollback(a *app) *cobra.Command {
	to := 0
	c := &cobra.Command{Use: "rollback NAME", Short: "let another kept version of a deployed model answer", Args: args("NAME"),
		Long: "Without --to the newest version before the present one answers. --to names any version that model list shows, a later one\n" +
			"too: that is the way forward again.",
		RunE: func(c *cobra.Command, got []string) error {
			if c.Flags().Changed("to") && to < 1 {
				return domain.Invalid("roll back model", fmt.Sprintf("--to is %d", to), "versions begin at 1; see: tensorturn model list")
			}
			id, err := domain.ParseID[domain.ModelID]("model", got[0])
			if err != nil {
				return err
			}
			cl, err := a.client()
			if err != nil {
				return err
			}
			var m models.Model
			if err := cl.call(c.Context(), http.MethodPost, "/api/v1/models/"+string(id)+"/rollback", gateway.RollBack{To: to}, &m); err != nil {
				return err
			}
			if a.json {
				return a.object(m)
			}
			v, _ := m.Find(0)
			a.say("version %d of %s answers: %s of run %s", v.Version, m.Name, modelIs(v), v.Run)
			return nil
		}}
	c.Flags().IntVar(&to, "to", 0, "version that shall answer (default: the newest before the present one)")
	return c
}

func modelRetire(a *app) *cobra.Command {
	return &cobra.Command{Use: "retire NAME", Short: "take a deployed model out of service", Args: args("NAME"), SuggestFor: []string{"undeploy", "delete", "remove", "stop"},
		Long: "The name answers no more, at once. Its keys stay and reach nothing; deployed again, it is the next version.",
		RunE: func(c *cobra.Command, got []string) error {
			id, err := domain.ParseID[domain.ModelID]("model", got[0])
			if err != nil {
				return err
			}
			cl, err := a.client()
			if err != nil {
				return err
			}
			path := "/api/v1/models/" + string(id)
			var was, m models.Model
			_ = cl.call(c.Context(), http.MethodGet, path, nil, &was) // one that is not there is refused below, in the words of the deed
			if err := cl.call(c.Context(), http.MethodDelete, path, nil, nil); err != nil {
				return err
			}
			if a.json {
				if err := cl.call(c.Context(), http.MethodGet, path, nil, &m); err != nil {
					return err
				}
				return a.object(m)
			}
			if was.Retired {
				a.say("%s was retired before: it answers no more", id)
				return nil
			}
			a.say("%s is retired: it answers no more, and its keys reach nothing", id)
			return nil
		}}
}
