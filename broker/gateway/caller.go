package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"tensorturn/broker/gateway/v2"
	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/pool"
	"tensorturn/projections/keys"
)

// Counts are the figures that the front keeps for Prometheus: broker/metrics implements it. Reasons of refused callers are
// a fixed few.
type Counts = v2.Counts

// Reasons of refused callers, as they are counted.
const (
	reasonMissing = "missing" // no key at all
	reasonForm    = "form"    // not the form of a key
	reasonUnknown = "unknown"
	reasonRevoked = "revoked"
	reasonExpired = "expired"
	reasonScope   = "scope" // a good key for something else
)

// Fault is why nobody comes in with what a request brought. Why and Next tell the bearer no more than he may know.
type Fault struct{ Reason, Why, Next string }

// caller is who a request comes from. Its zero value is nobody and may nothing.
type caller struct {
	role pool.Role
	key  domain.KeyID // empty for the owner's own key
	run  domain.RunID // the only run an observer sees, empty for all
}

// actor names the caller in the log.
func (c caller) actor() event.Actor {
	if c.key == "" {
		return "operator"
	}
	return event.Actor("key:" + string(c.key))
}

// sees reports whether the caller may know of the run.
func (c caller) sees(r domain.RunID) bool { return c.run == "" || c.run == r }

type callerOfRequest struct{}

func withCaller(ctx context.Context, c caller) context.Context {
	return context.WithValue(ctx, callerOfRequest{}, c)
}

func callerIn(ctx context.Context) caller {
	c, _ := ctx.Value(callerOfRequest{}).(caller)
	return c
}

// identify finds who bears the secret: the owner's own key by its file, every other by its hash.
func (g *Gateway) identify(secret string) (caller, *Fault) {
	if secret != "" && g.cfg.Operator(secret) {
		return caller{role: pool.RoleOperator}, nil
	}
	k, fault := g.keyOf(secret)
	if fault != nil {
		return caller{}, fault
	}
	return caller{role: k.Role, key: k.ID, run: k.Run}, nil
}

// keyOf finds the live key that a secret is.
func (g *Gateway) keyOf(secret string) (k keys.Key, fault *Fault) {
	const copied = "copy the whole key: the owner's is in operator.json in the hub's folder, on the hub's machine; others ask the owner for theirs"
	if secret == "" {
		return k, &Fault{reasonMissing, "a key is missing", "send it as Authorization: Bearer KEY; the owner's is in the operator.json of the hub's folder"}
	}
	if !identity.LooksLikeKey(secret) {
		return k, &Fault{reasonForm, "this is not a key", copied}
	}
	hash, ok := identity.HashKey(secret), false
	g.cfg.Views.Engine.Read(func(uint64) { k, ok = g.cfg.Views.Keys.Find(hash) })
	switch {
	case !ok:
		return k, &Fault{reasonUnknown, "the key is not known to this hub", copied}
	case k.Revoked:
		return k, &Fault{reasonRevoked, fmt.Sprintf("the key %s was revoked", k.ID), "ask the pool's owner for a new one: tensorturn key create"}
	case !k.Live(g.cfg.Now()):
		return k, &Fault{reasonExpired, fmt.Sprintf("the key %s expired at %s", k.ID, k.Expires.Format("2006-01-02 15:04 MST")), "ask the pool's owner for a new one: tensorturn key create"}
	}
	return k, nil
}

// endOf gives a question: has the caller's key ended by now?
func (g *Gateway) endOf(c caller) func() bool {
	return func() bool {
		if c.key == "" {
			return false
		}
		var k keys.Key
		var ok bool
		g.cfg.Views.Engine.Read(func(uint64) { k, ok = g.cfg.Views.Keys.Get(c.key) })
		return !ok || !k.Live(g.cfg.Now())
	}
}

// What observers may read, each with what is below it. Everything else is the operator's, also what is added later and
// not listed here: the log's raw records, tokens, keys and other observers open doors.
var (
	everyObserver = []string{"/api/v1/runs", "/api/v1/events", "/api/v1/openapi.json", "/api/v1/openapi.yaml", "/api/v1/schemas"}
	poolObserver  = []string{"/api/v1/machines", "/api/v1/models", "/api/v1/usage", "/metrics"}
)

// permit says whether the caller's role goes as far as the request.
func (g *Gateway) permit(c caller, r *http.Request) error {
	op := r.Method + " " + domain.Clip(r.URL.Path, 80)
	switch c.role {
	case pool.RoleOperator:
		return nil
	case pool.RoleObserver:
	default:
		return domain.Denied(op, "this key asks a model for predictions and nothing else", "predictions are under /v2/models; use an operator's or observer's key here")
	}
	if r.Method != http.MethodGet {
		return domain.Denied(op, "an observer's key only reads", "use an operator's key: tensorturn key create --role operator")
	}
	path := r.URL.EscapedPath() // as chi routes it: a %2f is part of a name, and a run may be named "r-1/x"
	if !isUnder(path, everyObserver) && (c.run != "" || !isUnder(path, poolObserver)) {
		return domain.Denied(op, "an observer's key does not reach this", "use an operator's key: tensorturn key create --role operator")
	}
	rest, ok := strings.CutPrefix(path, "/api/v1/runs/")
	name, page, _ := strings.Cut(rest, "/")
	if ok && page == "logs" {
		return domain.Denied(op, "an observer's key does not read what programs print", "use an operator's key: tensorturn key create --role operator")
	}
	if ok && page == "export" {
		return domain.Denied(op, "an observer's key does not take runs and their weights out", "use an operator's key: tensorturn key create --role operator")
	}
	if ok && page == "explain" {
		return domain.Denied(op, "an observer's key does not ask what other runs and machines do", "use an operator's key: tensorturn key create --role operator")
	}
	if c.run == "" || !ok {
		return nil
	}
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	if found, err := g.findRun("show", name); err != nil || found.ID != c.run {
		return noRun("show", name) // the same for a run that is not there
	}
	return nil
}

// isUnder reports whether the path is one of the list or below one.
func isUnder(path string, list []string) bool {
	for _, p := range list {
		if rest, ok := strings.CutPrefix(path, p); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}
