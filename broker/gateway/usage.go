package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/domain"
	"tensorturn/projections/usage"
)

func (g *Gateway) registerUsage(api huma.API) {
	huma.Register(api, op("usage", http.MethodGet, "/api/v1/usage", "Tell what was used by each run, machine and key"),
		func(_ context.Context, in *struct {
			Since string `query:"since" maxLength:"40" doc:"a time (2026-11-30T12:00:00Z); counts begin with its hour; from the beginning when absent"`
		}) (*struct{ Body usage.Report }, error) {
			var since time.Time
			if in.Since != "" {
				var err error
				if since, err = time.Parse(time.RFC3339, in.Since); err != nil {
					return nil, g.problemOf(domain.Invalid("read usage", domain.Clip(in.Since, 40)+" is not a time", "give it as 2026-11-30T12:00:00Z"))
				}
			}
			return &struct{ Body usage.Report }{g.usage(since)}, nil
		})
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
