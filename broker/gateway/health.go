package gateway

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/broker/health"
)

// HubStatus is the hub about itself: the room for its store, and how far its log and views are.
type HubStatus struct {
	health.Room
	Version  string `json:"version"`
	Records  uint64 `json:"records" doc:"sequence of the newest record that the views have seen"`
	ReadOnly string `json:"read_only,omitempty" doc:"why the hub takes no commands"`
}

// health says in one word what the hub can do. It is open, and says nothing else. 200 says that it takes commands; a store
// that is low on disk still does, full and read-only do not.
func (g *Gateway) health(w http.ResponseWriter, r *http.Request) {
	state := g.state()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if state != health.Ready && state != health.Low {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	w.Write([]byte(state + "\n"))
}

// state is what the watch has seen last, or what the log says now.
func (g *Gateway) state() health.State {
	if g.cfg.Hub.ReadOnly() != nil {
		return health.ReadOnly
	}
	return g.cfg.Health.Room().State
}

func (g *Gateway) registerHealth(api huma.API) {
	huma.Register(api, op("show-hub", http.MethodGet, "/api/v1/hub", "Show whether the hub is ready, and the room for its store"),
		func(ctx context.Context, _ *struct{}) (*struct{ Body HubStatus }, error) {
			out := HubStatus{Room: g.cfg.Health.Room(), Version: g.cfg.Version}
			out.State = g.state()
			if err := g.cfg.Hub.ReadOnly(); err != nil {
				out.ReadOnly = err.Error()
			}
			g.cfg.Views.Engine.Read(func(position uint64) { out.Records = position })
			return &struct{ Body HubStatus }{out}, nil
		})
}
