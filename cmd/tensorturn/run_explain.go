package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tensorturn/broker/gateway"
	"tensorturn/broker/hub"
	"tensorturn/domain"
	"tensorturn/domain/forecast"
	"tensorturn/domain/plan"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
)

func runExplain(a *app) *cobra.Command {
	var link hubLink
	c := &cobra.Command{Use: "explain RUN", Short: "say which machines take part and why, what a round costs, and what would make it cheaper", Args: args("RUN"),
		RunE: func(c *cobra.Command, got []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			r, err := cl.run(c.Context(), got[0])
			if err != nil {
				return err
			}
			if r.Phase.Ended() {
				return a.explainEnded(r)
			}
			query := url.Values{}
			for name, v := range map[string]float64{"hub_up": float64(link.up), "hub_down": float64(link.down)} {
				if v > 0 {
					query.Set(name, strconv.FormatFloat(v, 'f', -1, 64))
				}
			}
			path := "/api/v1/runs/" + url.PathEscape(string(r.ID)) + "/explain"
			if len(query) > 0 {
				path += "?" + query.Encode()
			}
			var e hub.Explanation
			if err := cl.call(c.Context(), http.MethodGet, path, nil, &e); err != nil {
				return err
			}
			return a.explained(e)
		}}
	link.flags(c.Flags())
	return c
}

// explainEnded says that nobody has a part in the run any more, and where to see who had.
func (a *app) explainEnded(r runs.Run) error {
	note := fmt.Sprintf("run %s has ended (%s): no machine has a part in it any more", r.ID, r.Phase)
	if a.json {
		return a.object(hub.Explanation{Run: r.ID, Machines: []hub.MachinePart{}, Notes: []string{note}})
	}
	a.print("%s", note)
	a.say("who did what: tensorturn run show %s; where the time went: tensorturn run goodput %s", r.ID, r.ID)
	return nil
}

// hubLink is what the owner knows of the hub's own link.
type hubLink struct{ up, down bitRate }

func (l *hubLink) flags(f *pflag.FlagSet) {
	f.Var(&l.up, "hub-up", "what the hub's link takes in, for example 100Mbit (default: the fastest that a machine has measured)")
	f.Var(&l.down, "hub-down", "what the hub's link sends")
}

// bitRate is a rate as links are sold: bits per second, kept in bytes.
type bitRate float64

var bitUnits = [...]struct {
	name string
	bits float64
}{{"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}}

// Set reads 100Mbit, 1Gbit/s.
func (r *bitRate) Set(text string) error {
	for _, u := range bitUnits {
		number, ok := strings.CutSuffix(strings.TrimSuffix(text, "/s"), u.name)
		if v, err := strconv.ParseFloat(strings.TrimSpace(number), 64); ok && err == nil && v > 0 && v < 1e6 {
			*r = bitRate(v * u.bits / 8)
			return nil
		}
	}
	return fmt.Errorf("%q is no rate: write for example 100Mbit", domain.Clip(text, domain.MaxNameLength))
}

func (r *bitRate) String() string {
	if *r == 0 {
		return ""
	}
	return bits(float64(*r))
}

// Type names the kind of value in help texts.
func (*bitRate) Type() string { return "rate" }

// bits says a rate of bytes per second as links are sold.
func bits(rate float64) string {
	for _, u := range bitUnits {
		if v := 8 * rate / u.bits; v >= 1 {
			return strconv.FormatFloat(v, 'g', 3, 64) + " " + u.name + "/s"
		}
	}
	return strconv.FormatFloat(8*rate, 'g', 3, 64) + " bit/s"
}

// tryRun says what a run would be; nothing is stored or started.
func (a *app) tryRun(ctx context.Context, cl *client, spec run.Spec, params int64, link hubLink) error {
	data, err := a.upload(ctx, nil, &spec)
	if err != nil {
		return err
	}
	if _, err := run.Resolve(spec, data); err != nil {
		return err
	}
	wish := gateway.TryRun{Spec: spec, Data: data, Params: params, Hub: forecast.Link{Up: float64(link.up), Down: float64(link.down)}}
	var e hub.Explanation
	if err := cl.call(ctx, http.MethodPost, "/api/v1/runs/explain", wish, &e); err != nil {
		return err
	}
	return a.explained(e)
}

// explained prints an explanation.
func (a *app) explained(e hub.Explanation) error {
	if a.json {
		return a.object(e)
	}
	rows, slots := [][]string{}, 0
	named := map[string]int{}
	for _, m := range e.Machines {
		named[m.Name]++
	}
	for _, m := range e.Machines {
		for _, p := range m.Slots {
			slots++
			rows = append(rows, []string{called(m.Name, m.Machine, named[m.Name] > 1), itoa(p.Slot.Index()), role(p.Role), p.Reason})
		}
	}
	a.print("%d of %s in the pool take part", e.Slots, count(slots, "slot"))
	for _, note := range e.Notes {
		a.print("%s", clean(note))
	}
	a.print("")
	a.table([]string{"MACHINE", "SLOT", "PART", "WHY"}, rows)
	if cost := costRows(e); len(cost) > 0 {
		a.print("")
		a.table([]string{"FIELD", "VALUE"}, cost)
	}
	return nil
}

// role says a role for people.
func role(r plan.Role) string {
	if r == plan.Out {
		return "no"
	}
	return "yes, " + string(r)
}

func costRows(e hub.Explanation) [][]string {
	var rows [][]string
	row := func(name, format string, args ...any) {
		rows = append(rows, []string{name, fmt.Sprintf(format, args...)})
	}
	if e.Params > 0 {
		row("parameters", "%d", e.Params)
	}
	switch {
	case e.Measured:
		row("a slot takes", "%s, as a dry step measured it", e.Take)
	case e.Take.Host > 0:
		row("a slot takes", "%s at least", e.Take)
	}
	for _, line := range e.Round.Lines() {
		row("a round", "%s", line)
	}
	if e.HubGuess && e.HubLink.Up+e.HubLink.Down > 0 && e.Round.HubOut > e.Round.Down {
		row("the hub's link", "reckoned with %s in and %s out, the fastest that machines have measured: it may be faster (--hub-up, --hub-down)", bits(e.HubLink.Up), bits(e.HubLink.Down))
	}
	if e.Round.Share > 0 {
		row("computing", "%.0f %% of a round's time", 100*e.Round.Share)
	}
	for _, r := range e.Round.Raise {
		if r.Share > 0 {
			row("would raise it", "to %.0f %%: %s", 100*r.Share, r.Text)
		} else {
			row("would cost less", "%s", r.Text)
		}
	}
	for _, u := range e.Round.Unknown {
		row("not known", "%s", u)
	}
	return rows
}
