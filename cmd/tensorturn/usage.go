package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tensorturn/domain"
	"tensorturn/projections/usage"
)

func usageCommand(a *app) *cobra.Command {
	var since string
	var asCSV bool
	c := &cobra.Command{Use: "usage", Short: "what each run, machine and key has used", Args: args(),
		Long: "Sums up leased slot-seconds, counted samples and steps, bytes up and down, and inference requests, from the log alone.\n" +
			"Bytes are those of deltas, weights and data as they are stored; what a cut link had to send twice is not counted.\n" +
			"Requests are written down when their minute has passed: they show within 70 s.",
		RunE: func(c *cobra.Command, _ []string) error {
			if asCSV && a.json {
				return domain.Invalid(c.CommandPath(), "--csv and --json exclude each other", "give one of them")
			}
			q, err := usageSince(since)
			if err != nil {
				return err
			}
			cl, err := a.client()
			if err != nil {
				return err
			}
			r, err := readUsage(c.Context(), cl, q)
			if err != nil {
				return err
			}
			switch {
			case a.json:
				return a.object(r)
			case asCSV:
				return a.usageCSV(r)
			}
			a.usageTable(r)
			return nil
		}}
	c.Flags().StringVar(&since, "since", "", "begin with the hour of a time (2026-11-30T12:00:00Z), a day (2026-11-30), or some time ago (24h)")
	c.Flags().BoolVar(&asCSV, "csv", false, "print comma-separated values, one line for each run, machine and key")
	return c
}

// readUsage joins a report's pages; each tells the total of all of them, and the last one is the newest.
func readUsage(ctx context.Context, cl *client, q string) (usage.Report, error) {
	all := usage.Report{Runs: []usage.Row{}, Machines: []usage.Row{}, Keys: []usage.Row{}}
	err := eachPage(ctx, cl, "/api/v1/usage"+q, func(page usage.Report) {
		page.Runs, page.Machines, page.Keys = append(all.Runs, page.Runs...), append(all.Machines, page.Machines...), append(all.Keys, page.Keys...)
		all = page
	})
	return all, err
}

// usageSince makes the query of --since.
func usageSince(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		at, err = time.Parse(time.DateOnly, s)
	}
	if d, no := time.ParseDuration(s); no == nil {
		at, err = time.Now().Add(-d), nil
	}
	if err != nil {
		return "", domain.Invalid("read --since", fmt.Sprintf("%q is no time, day or duration", domain.Clip(s, 40)), "give 2026-11-30T12:00:00Z, 2026-11-30, or 24h")
	}
	return "?since=" + url.QueryEscape(at.UTC().Format(time.RFC3339)), nil
}

// part is one kind of row of a report.
type part struct {
	of   string
	rows []usage.Row
}

func parts(r usage.Report) []part {
	return []part{{"run", r.Runs}, {"machine", r.Machines}, {"key", r.Keys}, {"total", []usage.Row{{Counts: r.Total}}}}
}

func (a *app) usageTable(r usage.Report) {
	from := "the beginning"
	if r.Since != nil {
		from = r.Since.Format(time.RFC3339)
	}
	a.say("from %s to %s", from, r.Until.Format(time.RFC3339))
	rows := [][]string{}
	for _, p := range parts(r) {
		for _, u := range p.rows {
			rows = append(rows, []string{p.of, u.ID, u.Name, short(time.Duration(u.SlotSeconds * float64(time.Second))), strconv.FormatInt(u.Samples, 10),
				strconv.FormatInt(u.Steps, 10), domain.FormatSize(u.BytesUp), domain.FormatSize(u.BytesDown), strconv.FormatInt(u.Requests, 10)})
		}
	}
	a.table([]string{"OF", "ID", "NAME", "SLOT TIME", "SAMPLES", "STEPS", "UP", "DOWN", "REQUESTS"}, rows)
}

// usageCSV prints exact figures, for spreadsheets. Text that a spreadsheet would take for a formula is quoted by an apostrophe.
func (a *app) usageCSV(r usage.Report) error {
	w := csv.NewWriter(a.out)
	w.Write([]string{"of", "id", "name", "slot_seconds", "samples", "steps", "bytes_up", "bytes_down", "requests", "rows"})
	for _, p := range parts(r) {
		for _, u := range p.rows {
			line := []string{p.of, u.ID, inert(clean(u.Name)), strconv.FormatFloat(u.SlotSeconds, 'f', -1, 64)}
			for _, n := range []int64{u.Samples, u.Steps, u.BytesUp, u.BytesDown, u.Requests, u.Rows} {
				line = append(line, strconv.FormatInt(n, 10))
			}
			w.Write(line)
		}
	}
	w.Flush()
	return w.Error()
}

// inert keeps a spreadsheet from computing a name that somebody gave.
func inert(s string) string {
	if strings.IndexAny(s, "=+-@") == 0 {
		return "'" + s
	}
	return s
}
