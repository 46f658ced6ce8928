package gateway

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tensorturn/broker/hub"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/pool"
	"tensorturn/projections/feed"
	"tensorturn/projections/observers"
)

// defaultObserverLife is how long an observer's credential works: nobody renews it, and an access that is forgotten should
// end one day.
const defaultObserverLife = 90 * 24 * time.Hour

// ObserverKeeper makes, admits and dismisses observers where identity, broker and feed are wired together.
type ObserverKeeper interface {
	// NewObserver makes and stores the account of an observer and returns its public key.
	NewObserver(id domain.ObserverID) (account string, err error)
	// AdmitObserver loads its account, makes its consumer, and issues its credential.
	AdmitObserver(ctx context.Context, o observers.Observer) (credential string, err error)
	// DismissObserver ends its connections and removes its consumer.
	DismissObserver(ctx context.Context, o observers.Observer) error
}

// CreateObserver is the body of POST /api/v1/observers.
type CreateObserver struct {
	Name    string     `json:"name,omitempty" maxLength:"80" doc:"for people"`
	NKey    string     `json:"nkey" maxLength:"80" doc:"public user nkey; its seed stays with the caller"`
	Run     string     `json:"run,omitempty" maxLength:"48" doc:"only this run's events; all when absent"`
	From    uint64     `json:"from,omitempty" doc:"the first sequence of the log it is told; all when absent"`
	Since   *time.Time `json:"since,omitempty" doc:"or the first moment"`
	Seconds int64      `json:"seconds,omitempty" minimum:"0" doc:"how long the credential works; 90 days when absent, at most 366"`
}

// CreatedObserver is all that a client needs beside its own seed.
type CreatedObserver struct {
	observers.Observer
	Credential string `json:"credential" doc:"user JWT; with the seed it makes a .creds file"`
	URL        string `json:"url" doc:"where a NATS client connects"`
	CA         string `json:"ca" doc:"PEM: the root that signed the hub's certificate"`
	Stream     string `json:"stream"`
	Consumer   string `json:"consumer"`
	APIPrefix  string `json:"api_prefix" doc:"JetStream API prefix to give the client"`
	Subject    string `json:"subject" doc:"filter of the consumer"`
}

func (g *Gateway) registerObservers(api huma.API) {
	huma.Register(api, op("list-observers", http.MethodGet, "/api/v1/observers", "List systems that may read events"),
		func(_ context.Context, in *Page) (*listBody[observers.Observer], error) {
			var all []observers.Observer
			g.cfg.Views.Engine.Read(func(uint64) { all = g.cfg.Views.Observers.List() })
			return pageOf(g, *in, "/api/v1/observers", all, func(o observers.Observer) string { return string(o.ID) })
		})
	huma.Register(api, op("create-observer", http.MethodPost, "/api/v1/observers", "Let another system read events"),
		func(ctx context.Context, in *struct{ Body CreateObserver }) (*struct{ Body CreatedObserver }, error) {
			o, err := g.createObserver(ctx, in.Body)
			return &struct{ Body CreatedObserver }{o}, err
		})
	huma.Register(api, op("revoke-observer", http.MethodDelete, "/api/v1/observers/{id}", "End an observer's access for ever"),
		func(ctx context.Context, in *struct {
			ID string `path:"id" maxLength:"48"`
		}) (*struct{}, error) {
			return nil, g.revokeObserver(ctx, domain.ObserverID(in.ID))
		})
}

// createObserver makes the account, records the fact, and only then lets the observer in: an account without a fact is a
// file without effect, a fact whose observer was not let in is admitted by the next start.
func (g *Gateway) createObserver(ctx context.Context, in CreateObserver) (CreatedObserver, error) {
	if in.Run != "" {
		r, err := g.showRun("read events of", in.Run)
		if err != nil {
			return CreatedObserver{}, err
		}
		in.Run = string(r.Body.ID)
	}
	if end := g.cfg.Events.Position(); in.From > end+1 {
		in.From = end + 1 // a place that nobody can know yet: begin with what comes
	}
	id := domain.ObserverID(readableID(in.Name, "observer", g.tail(ctx, "o")))
	account, err := g.cfg.Observers.NewObserver(id)
	if err != nil {
		return CreatedObserver{}, g.problemOf(err)
	}
	now, life := g.cfg.Now(), time.Duration(in.Seconds)*time.Second
	if in.Seconds <= 0 {
		life = defaultObserverLife
	}
	c := pool.CreateObserver{ID: id, Name: in.Name, Account: account, NKey: in.NKey, Run: domain.RunID(in.Run), From: in.From,
		Expires: now.Add(life).UTC().Truncate(time.Second), Now: now}
	if in.Since != nil {
		c.Since = *in.Since
	}
	if err := g.do(ctx, hub.Target{Kind: event.KindPool, ID: pool.ID, Command: c}); err != nil {
		return CreatedObserver{}, err
	}
	o, ok := g.observer(id)
	if !ok || !o.Live(now) { // a repeated request may come when its observer was ended
		return CreatedObserver{}, g.problemOf(domain.Conflict("create observer "+string(id), "it was made before and has ended since", "use a fresh "+idempotencyHeader))
	}
	credential, err := g.cfg.Observers.AdmitObserver(ctx, o)
	if err != nil {
		return CreatedObserver{}, g.problemOf(err)
	}
	return CreatedObserver{Observer: o, Credential: credential, URL: strings.Replace(g.cfg.PublicURL, "https://", "wss://", 1) + "/nats", CA: string(g.cfg.CA),
		Stream: wire.FeedStream, Consumer: o.Account, APIPrefix: wire.FeedAPI, Subject: feed.Filter(o.Run)}, nil
}

func (g *Gateway) observer(id domain.ObserverID) (o observers.Observer, ok bool) {
	g.cfg.Views.Engine.Read(func(uint64) { o, ok = g.cfg.Views.Observers.Get(id) })
	return o, ok
}

// revokeObserver records the end and then enforces it; should that fail, the same call again enforces it.
func (g *Gateway) revokeObserver(ctx context.Context, id domain.ObserverID) error {
	o, ok := g.observer(id)
	if !ok {
		return g.problemOf(domain.NotFound("revoke observer "+domain.Clip(string(id), 48), "there is no such observer", "list them with: tensorturn credential list"))
	}
	if err := g.do(ctx, hub.Target{Kind: event.KindPool, ID: pool.ID, Command: pool.RevokeObserver{ID: id}}); err != nil {
		return err
	}
	if err := g.cfg.Observers.DismissObserver(ctx, o); err != nil {
		return g.problemOf(err)
	}
	return nil
}
