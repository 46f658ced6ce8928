package gateway

import (
	"context"
	"encoding/hex"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/broker/webhook"
	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Webhooks are broker/webhook's Hooks.
type Webhooks interface {
	Create(s webhook.Spec) (webhook.Hook, error)
	List() []webhook.Hook
	Remove(id string) error
	Redeliver(id string) error
}

// CreateWebhook is the body of POST /api/v1/webhooks.
type CreateWebhook struct {
	URL  string `json:"url" maxLength:"2048" doc:"https URL that takes POSTs of CloudEvents, signed as Standard Webhooks say"`
	Name string `json:"name,omitempty" maxLength:"80"`
	Run  string `json:"run,omitempty" maxLength:"48" doc:"only this run's events"`
	Kind string `json:"kind,omitempty" enum:"run,machine,pool" doc:"only events of this kind"`
	From uint64 `json:"from,omitempty" doc:"the first sequence of the log it is sent; what happens from now on when absent"`
}

func (g *Gateway) registerWebhooks(api huma.API) {
	type path struct {
		ID string `path:"id" maxLength:"48"`
	}
	huma.Register(api, op("list-webhooks", http.MethodGet, "/api/v1/webhooks", "List webhooks with their dead events"),
		func(_ context.Context, in *Page) (*listBody[webhook.Hook], error) {
			return pageOf(g, *in, "/api/v1/webhooks", g.cfg.Webhooks.List(), func(k webhook.Hook) string { return k.ID })
		})
	huma.Register(api, op("create-webhook", http.MethodPost, "/api/v1/webhooks", "Send events to another system; the answer holds the secret, once"),
		func(ctx context.Context, in *struct{ Body CreateWebhook }) (*struct{ Body webhook.Hook }, error) {
			k, err := g.createWebhook(ctx, in.Body)
			return &struct{ Body webhook.Hook }{k}, err
		})
	huma.Register(api, op("remove-webhook", http.MethodDelete, "/api/v1/webhooks/{id}", "Send no more"),
		func(_ context.Context, in *path) (*struct{}, error) { return nil, g.told(g.cfg.Webhooks.Remove(in.ID)) })
	huma.Register(api, op("redeliver-webhook", http.MethodPost, "/api/v1/webhooks/{id}/redeliver", "Send dead events once more"),
		func(_ context.Context, in *path) (*struct{}, error) {
			return nil, g.told(g.cfg.Webhooks.Redeliver(in.ID))
		})
}

func (g *Gateway) createWebhook(ctx context.Context, in CreateWebhook) (webhook.Hook, error) {
	if in.Run != "" {
		r, err := g.showRun("send events of", in.Run)
		if err != nil {
			return webhook.Hook{}, err
		}
		in.Run = string(r.Body.ID)
	}
	s := webhook.Spec{ID: readableID(in.Name, "webhook", g.tail(ctx, "w")), Name: in.Name, URL: in.URL, Run: domain.RunID(in.Run), Kind: event.Kind(in.Kind),
		After: g.cfg.Events.Position()}
	if r := repeated(ctx); r != nil { // a webhook is in no log: its own file remembers what the key made
		s.MadeBy = &webhook.Repeat{Key: hex.EncodeToString(r.key), Request: hex.EncodeToString(r.request)}
	}
	if in.From > 0 {
		s.After = min(in.From-1, s.After)
	}
	k, err := g.cfg.Webhooks.Create(s)
	return k, g.told(err)
}

// told gives an error as the API tells it.
func (g *Gateway) told(err error) error {
	if err == nil {
		return nil
	}
	return g.problemOf(err)
}
