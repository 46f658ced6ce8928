package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
)

func runCommand(a *app) *cobra.Command {
	return group("run", "submit, follow and replay runs",
		runSubmit(a), runList(a), runShow(a), runWatch(a),
		runVerb(a, "cancel", "end a run; its last model stays"),
		runVerb(a, "pause", "stop granting new work; what is trained is still contributed"),
		runVerb(a, "resume", "go on with a paused run"),
		runReplay(a))
}

func runList(a *app) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "list runs, oldest first", Args: args(),
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			var rs []runs.Run
			if err := cl.call(c.Context(), http.MethodGet, "/api/v1/runs", nil, &rs); err != nil {
				return err
			}
			if a.json {
				return a.object(rs)
			}
			rows := [][]string{}
			for _, r := range rs {
				rows = append(rows, []string{string(r.ID), r.Name, phase(r), percent(r.Ledger.Counted, r.Ledger.Expected),
					fmt.Sprintf("%d/%d", r.Rounds.Merged, r.Rounds.Planned), r.Submitted.Format(time.RFC3339)})
			}
			a.table([]string{"RUN", "NAME", "PHASE", "COUNTED", "ROUNDS", "SUBMITTED"}, rows)
			return nil
		}}
}

func phase(r runs.Run) string {
	switch {
	case r.Phase.Ended():
		return string(r.Phase)
	case r.Paused != "":
		return "paused"
	case r.Rounds.Stalled:
		return "stalled"
	}
	return string(r.Phase)
}

func (c *client) run(ctx context.Context, id string) (runs.Run, error) {
	var r runs.Run
	err := c.call(ctx, http.MethodGet, "/api/v1/runs/"+url.PathEscape(id), nil, &r)
	return r, err
}

func runShow(a *app) *cobra.Command {
	return &cobra.Command{Use: "show RUN", Short: "show a run: progress, who did what, and every setting in force", Args: args("RUN"),
		RunE: func(c *cobra.Command, got []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			r, err := cl.run(c.Context(), got[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.object(r)
			}
			a.showRun(r)
			return nil
		}}
}

func (a *app) showRun(r runs.Run) {
	rows := [][]string{{"run", string(r.ID)}, {"name", r.Name}, {"phase", phase(r)}}
	for _, why := range []string{r.Paused, r.Reason} {
		if why != "" {
			rows = append(rows, []string{"reason", why})
		}
	}
	rows = append(rows,
		[]string{"ledger", fmt.Sprintf("%d of %d samples counted (%s)", r.Ledger.Counted, r.Ledger.Expected, percent(r.Ledger.Counted, r.Ledger.Expected))},
		[]string{"rounds", fmt.Sprintf("%d of %d merged", r.Rounds.Merged, r.Rounds.Planned)})
	if r.Rounds.Open > 0 {
		rows = append(rows, []string{"open round", fmt.Sprintf("%d: %d of %d chunks counted", r.Rounds.Open, r.Rounds.Counted, r.Rounds.Chunks)})
	}
	rows = append(rows, []string{"model", r.Model.Short()}, []string{"parameters", itoa(r.Params)},
		[]string{"steals", fmt.Sprintf("%d (%d chunks)", r.Totals.Steals, r.Totals.Stolen)},
		[]string{"requeued chunks", itoa(r.Totals.Requeued)}, []string{"refused contributions", itoa(r.Totals.Refused)})
	if e := r.Evaluations; len(e) > 0 {
		last := e[len(e)-1]
		rows = append(rows, []string{"held-out", fmt.Sprintf("accuracy %.4f, loss %.4f on %d samples after round %d", last.Accuracy, last.Loss, last.Samples, last.Round)})
	} else if r.Phase == run.PhaseCompleted {
		rows = append(rows, []string{"held-out", "not evaluated"})
	}
	a.table([]string{"FIELD", "VALUE"}, rows)
	a.print("")
	a.slotTable(r)
	a.print("")
	a.table([]string{"SETTING", "IN FORCE"}, settings(r.Spec))
}

// slotTable says who did what.
func (a *app) slotTable(r runs.Run) {
	rows := [][]string{}
	for _, s := range r.Slots {
		speed := "-"
		if s.Seconds > 0 && s.Chunks > 0 {
			speed = fmt.Sprintf("%.0f/s", float64(s.Chunks)*float64(r.Spec.Chunk)/s.Seconds)
		}
		rows = append(rows, []string{string(s.Slot), string(s.Lease), itoa(s.Chunks), itoa(s.Samples), percent(s.Samples, r.Ledger.Counted), speed,
			itoa(s.Contributions), itoa(s.Stole), itoa(s.Lost), itoa(s.Requeued), itoa(s.Refused)})
	}
	a.table([]string{"SLOT", "LEASE", "TRAINED", "COUNTED", "SHARE", "SPEED", "DELTAS", "STOLE", "STOLEN FROM", "REQUEUED", "REFUSED"}, rows)
}

func runVerb(a *app, verb, help string) *cobra.Command {
	var reason string
	c := &cobra.Command{Use: verb + " RUN", Short: help, Args: args("RUN"),
		RunE: func(c *cobra.Command, got []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			var r runs.Run
			if err := cl.call(c.Context(), http.MethodPost, "/api/v1/runs/"+url.PathEscape(got[0])+"/"+verb, gateway.Reasoned{Reason: reason}, &r); err != nil {
				return err
			}
			if a.json {
				return a.object(r)
			}
			a.say("%s is %s", r.ID, phase(r))
			return nil
		}}
	c.Flags().StringVar(&reason, "reason", "", "why, for the log")
	return c
}
