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
	"tensorturn/projections/fleet"
)

// defaultTokenLife is how long a token is valid unless asked otherwise (design section 9); pool.MaxTokenLife bounds it.
const defaultTokenLife = 24 * time.Hour

// CreateToken is the body of POST /api/v1/tokens.
type CreateToken struct {
	Uses    int   `json:"uses,omitempty" minimum:"0" maximum:"1024" doc:"machines it may join; 1 when absent"`
	Seconds int64 `json:"seconds,omitempty" minimum:"0" maximum:"2592000" doc:"how long it is valid; 24 h when absent, at most 30 days"`
}

// CreatedToken is shown once: the hub keeps only the secret's SHA-256.
type CreatedToken struct {
	ID      domain.TokenID `json:"id"`
	Token   string         `json:"token"`
	Uses    int            `json:"uses"`
	Expires time.Time      `json:"expires"`
	URL     string         `json:"url"`
	Join    string         `json:"join" doc:"the command line that joins a machine"`
}

func (g *Gateway) registerTokens(api huma.API) {
	huma.Register(api, op("list-tokens", http.MethodGet, "/api/v1/tokens", "List join tokens by their public ids"),
		func(_ context.Context, in *Page) (*listBody[fleet.Token], error) {
			var all []fleet.Token
			g.cfg.Views.Engine.Read(func(uint64) { all = g.cfg.Views.Fleet.Tokens() })
			return pageOf(g, *in, "/api/v1/tokens", all, func(t fleet.Token) string { return string(t.ID) })
		})
	huma.Register(api, op("create-token", http.MethodPost, "/api/v1/tokens", "Make a join token"),
		func(ctx context.Context, in *struct {
			Body *CreateToken // may be left out
		}) (*struct{ Body CreatedToken }, error) {
			var asked CreateToken
			if in.Body != nil {
				asked = *in.Body
			}
			t, err := g.createToken(ctx, asked)
			return &struct{ Body CreatedToken }{t}, err
		})
	huma.Register(api, op("revoke-token", http.MethodDelete, "/api/v1/tokens/{id}", "Revoke a join token"),
		func(ctx context.Context, in *struct {
			ID string `path:"id" maxLength:"48"`
		}) (*struct{}, error) {
			return nil, g.do(ctx, hub.Target{Kind: event.KindPool, ID: pool.ID, Command: pool.RevokeToken{ID: domain.TokenID(in.ID)}})
		})
}

func (g *Gateway) createToken(ctx context.Context, in CreateToken) (CreatedToken, error) {
	life := time.Duration(in.Seconds) * time.Second
	if in.Seconds == 0 {
		life = defaultTokenLife
	}
	draw, err := g.random(ctx, "join token")
	if err != nil {
		return CreatedToken{}, g.problemOf(err)
	}
	t, err := identity.NewToken(draw, g.cfg.Pin)
	if err != nil {
		return CreatedToken{}, g.problemOf(err)
	}
	now := g.cfg.Now()
	c := CreatedToken{ID: t.ID(), Token: t.Plain(), Uses: max(in.Uses, 1), Expires: now.Add(life).UTC().Truncate(time.Second), URL: g.cfg.PublicURL}
	c.Join = "tensorturn agent join " + g.cfg.PublicURL + " --token " + c.Token
	if err := g.do(ctx, hub.Target{Kind: event.KindPool, ID: pool.ID, Command: pool.CreateToken{ID: t.ID(), Hash: t.Hash(), Expires: c.Expires, Uses: c.Uses, Now: now}}); err != nil {
		return CreatedToken{}, err
	}
	var kept fleet.Token
	known := false
	g.cfg.Views.Engine.Read(func(uint64) { kept, known = g.cfg.Views.Fleet.Token(t.ID()) })
	if !known { // a repeated request may come when its token was long dead
		return CreatedToken{}, g.problemOf(domain.Conflict("create token "+string(t.ID()), "it was made before and has ended since", "use a fresh "+idempotencyHeader))
	}
	c.Expires = kept.Expires
	return c, nil
}
