package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/projections/runs"
)

func runCommand(a *app) *cobra.Command {
	return group("run", "submit, follow and replay runs",
		runSubmit(a), runExplain(a), runList(a), runShow(a), runWatch(a), runLogs(a),
		runVerb(a, "cancel", "end a run; its last model stays"),
		runVerb(a, "pause", "stop granting new work; what is trained is still contributed"),
		runVerb(a, "resume", "go on with a paused run"),
		runReplay(a), runGoodput(a))
}

func runList(a *app) *cobra.Command {
	var fromArchive bool
	var dir string
	c := &cobra.Command{Use: "list", Short: "list runs, oldest first", Args: args(),
		RunE: func(c *cobra.Command, _ []string) error {
			if fromArchive {
				return a.listArchived(dir)
			}
			cl, err := a.client()
			if err != nil {
				return err
			}
			rs, err := pages[runs.Run](c.Context(), cl, "/api/v1/runs")
			if err != nil {
				return err
			}
			if a.json {
				return a.object(rs)
			}
			rows := [][]string{}
			for _, r := range rs {
				rows = append(rows, []string{string(r.ID), r.Name, phase(r), percent(r.Ledger.Counted, r.Ledger.Expected),
					fmt.Sprintf("%d/%d", r.Rounds.Merged, r.Rounds.Planned), heldout(r), r.Submitted.Format(time.RFC3339)})
			}
			a.table([]string{"RUN", "NAME", "PHASE", "COUNTED", "ROUNDS", "HELD-OUT", "SUBMITTED"}, rows)
			return nil
		}}
	c.Flags().BoolVar(&fromArchive, "archived", false, "list runs of other hubs that were imported, with no hub at all")
	c.Flags().StringVar(&dir, "archive", archiveDir(), "with --archived: folder of the archive")
	return c
}

// heldout is the newest figure on held-out data that a run is judged by, with its name: runs of one list have different ones.
func heldout(r runs.Run) string {
	if r.Vote != nil {
		return fmt.Sprintf("vote accuracy %.4f", r.Vote.Result.Vote.Accuracy)
	}
	n := len(r.Evaluations)
	if n == 0 {
		return "-"
	}
	switch last := r.Evaluations[n-1]; {
	case last.R2 != nil:
		return fmt.Sprintf("R² %.4f", *last.R2)
	case last.MAE != nil: // the numbers are all equal
		return fmt.Sprintf("mean absolute error %.4g", *last.MAE)
	default:
		return fmt.Sprintf("accuracy %.4f", last.Accuracy)
	}
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

// over says of a run that has ended, by its id, why it cannot be told anything; every other refusal stays as it is.
func (c *client) over(ctx context.Context, verb, name string, refused error) error {
	if domain.KindOf(refused) != domain.KindConflict {
		return refused
	}
	r, err := c.run(ctx, name)
	if err != nil || !r.Phase.Ended() {
		return refused
	}
	return domain.Conflict(verb+" run "+string(r.ID), "it has ended: "+string(r.Phase), "see what it did: tensorturn run show "+string(r.ID)+"; to train again: tensorturn run submit")
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
				return cl.over(c.Context(), verb, got[0], err)
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
