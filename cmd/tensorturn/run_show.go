package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tensorturn/domain/run"
	"tensorturn/projections/runs"
)

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
			ms, err := cl.machines(c.Context())
			if err != nil {
				return err
			}
			a.showRun(r, a.waitsWith(c.Context(), cl, r, ms))
			return nil
		}}
}

// showRun prints a run; waits is what keeps it from going on, empty for nothing.
func (a *app) showRun(r runs.Run, waits string) {
	rows := [][]string{{"run", string(r.ID)}, {"name", r.Name}, {"phase", phase(r)}}
	if r.Reason != "" {
		rows = append(rows, []string{"reason", r.Reason})
	}
	if waits != "" {
		rows = append(rows, []string{"waits for", strings.TrimPrefix(waits, "waiting for ")})
	}
	rows = append(rows,
		[]string{"ledger", fmt.Sprintf("%d of %s counted (%s)", r.Ledger.Counted, count(r.Ledger.Expected, "sample"), percent(r.Ledger.Counted, r.Ledger.Expected))})
	if r.Members != nil {
		a.table([]string{"FIELD", "VALUE"}, append(rows, ensembleRows(r)...))
		a.print("")
		a.memberTable(r)
		a.scoreTable(r)
		a.print("")
		a.table([]string{"SETTING", "IN FORCE"}, settings(r.Spec))
		return
	}
	rows = append(rows,
		[]string{"rounds", fmt.Sprintf("%d of %d merged", r.Rounds.Merged, r.Rounds.Planned)})
	if r.Rounds.Open > 0 {
		rows = append(rows, []string{"open round", fmt.Sprintf("%d: %d of %s counted", r.Rounds.Open, r.Rounds.Counted, count(r.Rounds.Chunks, "chunk"))})
	}
	if r.Model != "" {
		rows = append(rows, []string{"model", r.Model.Short()}, []string{"parameters", itoa(r.Params)})
	}
	rows = append(rows, []string{"steals", fmt.Sprintf("%d (%s)", r.Totals.Steals, count(r.Totals.Stolen, "chunk"))},
		[]string{"requeued chunks", itoa(r.Totals.Requeued) + " (of lost machines, failed trainers, and deltas refused, cut or revoked)"}, []string{"copied chunks", itoa(r.Totals.Copied)},
		[]string{"adopted chunks", itoa(r.Totals.Adopted)}, []string{"refused contributions", itoa(r.Totals.Refused)})
	if e := r.Evaluations; len(e) > 0 {
		last := e[len(e)-1]
		rows = append(rows, []string{"held-out", fmt.Sprintf("%s on %s after round %d", last.Figures(), count(last.Samples, "sample"), last.Round)})
	} else if r.Phase == run.PhaseCompleted {
		rows = append(rows, []string{"held-out", "not evaluated"})
	}
	if s := chunkHint(r); s != "" {
		rows = append(rows, []string{"hint", s})
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
