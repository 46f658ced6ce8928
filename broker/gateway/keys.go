package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/broker/hub"
	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/pool"
	"tensorturn/projections/keys"
)

// defaultKeyLife is how long a key works unless asked otherwise; pool.MaxKeyLife bounds it.
const defaultKeyLife = 90 * 24 * time.Hour

// CreateKey is the body of POST /api/v1/keys.
type CreateKey struct {
	Role        pool.Role      `json:"role,omitempty" enum:"model,operator,observer" doc:"model when absent"`
	Model       domain.ModelID `json:"model,omitempty" maxLength:"48" doc:"the deployed model it may ask; with role model alone"`
	Run         string         `json:"run,omitempty" maxLength:"80" doc:"the only run an observer sees; all when absent"`
	Name        string         `json:"name,omitempty" maxLength:"80" doc:"for people"`
	Rate        int            `json:"rate,omitempty" minimum:"0" maximum:"100000" doc:"requests in rate_seconds, of a key for a model; 1000 a second when absent"`
	RateSeconds int            `json:"rate_seconds,omitempty" minimum:"0" maximum:"60" doc:"1 or 60; 1 when absent"`
	Seconds     int64          `json:"seconds,omitempty" minimum:"0" maximum:"31622400" doc:"how long it works; 90 days when absent, at most 366"`
}

// CreatedKey is shown once: the hub keeps only the secret's SHA-256.
type CreatedKey struct {
	keys.Key
	Secret string `json:"key" doc:"what goes behind Authorization: Bearer"`
	URL    string `json:"url" doc:"where the key's bearer asks: of a model, the base that V2 clients take"`
}

func (g *Gateway) registerKeys(api huma.API) {
	huma.Register(api, op("list-keys", http.MethodGet, "/api/v1/keys", "List API keys by their public ids"),
		func(_ context.Context, in *Page) (*listBody[keys.Key], error) {
			var all []keys.Key
			g.cfg.Views.Engine.Read(func(uint64) { all = g.cfg.Views.Keys.List() })
			return pageOf(g, *in, "/api/v1/keys", all, func(k keys.Key) string { return string(k.ID) })
		})
	huma.Register(api, op("create-key", http.MethodPost, "/api/v1/keys", "Make an API key"),
		func(ctx context.Context, in *struct{ Body CreateKey }) (*struct{ Body CreatedKey }, error) {
			k, err := g.createKey(ctx, in.Body)
			return &struct{ Body CreatedKey }{k}, err
		})
	huma.Register(api, op("revoke-key", http.MethodDelete, "/api/v1/keys/{id}", "Revoke an API key; requests and streams that carry it end"),
		func(ctx context.Context, in *struct {
			ID string `path:"id" maxLength:"48"`
		}) (*struct{}, error) {
			return nil, g.do(ctx, hub.Target{Kind: event.KindPool, ID: pool.ID, Command: pool.RevokeKey{ID: domain.KeyID(in.ID)}})
		})
}

func (g *Gateway) createKey(ctx context.Context, in CreateKey) (out CreatedKey, err error) {
	if in.Role == "" {
		in.Role = pool.RoleModel
	}
	if in.Run != "" {
		r, err := g.showRun("read", in.Run)
		if err != nil {
			return out, err
		}
		in.Run = string(r.Body.ID)
	}
	if in.Rate > 0 && in.RateSeconds == 0 {
		in.RateSeconds = 1
	}
	random, err := g.random(ctx, "key")
	if err != nil {
		return out, g.problemOf(err)
	}
	k, err := identity.NewAPIKey(random, in.Role)
	if err != nil {
		return out, g.problemOf(err)
	}
	now, life := g.cfg.Now(), time.Duration(in.Seconds)*time.Second
	if life == 0 {
		life = defaultKeyLife
	}
	err = g.do(ctx, hub.Target{Kind: event.KindPool, ID: pool.ID, Command: pool.CreateKey{ID: k.ID(), Hash: k.Hash(), Tail: k.Tail(), Name: in.Name, Role: in.Role,
		Model: in.Model, Run: domain.RunID(in.Run), Rate: in.Rate, Per: in.RateSeconds, Expires: now.Add(life).UTC().Truncate(time.Second), Now: now}})
	if err != nil {
		return out, err
	}
	out = CreatedKey{Secret: k.Plain(), URL: g.cfg.PublicURL}
	g.cfg.Views.Engine.Read(func(uint64) { out.Key, _ = g.cfg.Views.Keys.Get(k.ID()) })
	return out, nil
}
