package gateway

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/domain"
	"tensorturn/projections/usage"
)

type (
	usageIn struct {
		Page
		Since string `query:"since" maxLength:"40" doc:"a time (2026-11-30T12:00:00Z); counts begin with its hour; from the beginning when absent"`
	}
	usageBody struct {
		Link string `header:"Link" doc:"the next page, while there is one: <path>; rel=\"next\""`
		Body usage.Report
	}
)

func (g *Gateway) registerUsage(api huma.API) {
	huma.Register(api, op("usage", http.MethodGet, "/api/v1/usage", "Tell what was used by each run, machine and key"),
		func(_ context.Context, in *usageIn) (*usageBody, error) {
			var since time.Time
			if in.Since != "" {
				var err error
				if since, err = time.Parse(time.RFC3339, in.Since); err != nil {
					return nil, g.problemOf(domain.Invalid("read usage", domain.Clip(in.Since, 40)+" is not a time", "give it as 2026-11-30T12:00:00Z"))
				}
			}
			return g.usagePage(in.Page, in.Since, g.usage(since))
		})
}

// used is a row of a report as pages count them: runs, then machines, then keys. Its name in `after` is KIND/ID, since a
// run and a machine may have the same id.
type used struct {
	of  string
	row usage.Row
}

// usagePage leaves the page's rows in the report. The total is that of all pages, on each.
func (g *Gateway) usagePage(p Page, since string, r usage.Report) (*usageBody, error) {
	var all []used
	for _, part := range []struct {
		of   string
		rows []usage.Row
	}{{"run", r.Runs}, {"machine", r.Machines}, {"key", r.Keys}} {
		for _, row := range part.rows {
			all = append(all, used{part.of, row})
		}
	}
	q := url.Values{}
	if since != "" {
		q.Set("since", since)
	}
	page, err := pageWith(g, p, "/api/v1/usage", q, all, func(u used) string { return u.of + "/" + u.row.ID })
	if err != nil {
		return nil, err
	}
	r.Runs, r.Machines, r.Keys = []usage.Row{}, []usage.Row{}, []usage.Row{}
	for _, u := range page.Body {
		switch u.of {
		case "run":
			r.Runs = append(r.Runs, u.row)
		case "machine":
			r.Machines = append(r.Machines, u.row)
		case "key":
			r.Keys = append(r.Keys, u.row)
		}
	}
	return &usageBody{Link: page.Link, Body: r}, nil
}

// usage sums up and gives names to ids.
func (g *Gateway) usage(since time.Time) (r usage.Report) {
	g.cfg.Views.Engine.Read(func(uint64) {
		r = g.cfg.Views.Usage.Since(since)
		for i := range r.Runs {
			found, _ := g.cfg.Views.Runs.Get(domain.RunID(r.Runs[i].ID))
			r.Runs[i].Name = found.Name
		}
		for i := range r.Machines {
			found, _ := g.cfg.Views.Fleet.Find(r.Machines[i].ID)
			r.Machines[i].Name = found.Name
		}
		for i := range r.Keys {
			found, _ := g.cfg.Views.Keys.Get(domain.KeyID(r.Keys[i].ID))
			r.Keys[i].Name = found.Name
		}
	})
	return r
}
