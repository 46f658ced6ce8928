// Package gateway is the HTTPS front: one public port for the API, blobs, enrolment, install and the WebSocket to the
// embedded NATS server. It checks who asks and how much, and hands on: to the hub for commands, to the views for
// questions, to the stores for bytes. It decides nothing. cmd wires it; DESIGN.md has the path of one request.
//
// Dependencies: huma describes the API in OpenAPI 3.1 from the Go types and checks bodies by it; chi routes; x/time/rate
// paces enrolment.
package gateway

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"path"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"tensorturn/broker"
	"tensorturn/broker/gateway/v2"
	"tensorturn/broker/health"
	"tensorturn/broker/hub"
	"tensorturn/broker/identity"
	"tensorturn/broker/inference"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/pool"
	"tensorturn/projections"
	"tensorturn/projections/archive"
	"tensorturn/projections/fleet"
	"tensorturn/projections/keys"
	"tensorturn/projections/models"
	"tensorturn/projections/observers"
	"tensorturn/projections/runs"
	"tensorturn/projections/timeline"
	"tensorturn/projections/usage"
)

// Limits of the public port.
const (
	headerTimeout  = 10 * time.Second // a slow header is an attack or a dead link
	bodyTimeout    = 5 * time.Minute  // one part of 8 MiB at 0.3 Mbit/s
	maxHeaderBytes = 64 << 10
	maxBodyBytes   = 1 << 20          // of an API call; blobs have their own limit
	maxWait        = 25 * time.Second // long polls end below the idle limits of common proxies
	maxWrite       = 15 * time.Minute // one answer of bytes: this program at 0.3 Mbit/s
	shutdownWait   = 10 * time.Second
)

// Decider takes commands: the hub's Service.
type Decider interface {
	Do(ctx context.Context, d hub.Do) error
	// ReadOnly is the reason why the hub takes no commands, nil when it does.
	ReadOnly() error
	// Deployment says what deploying a run would record, as the log stands.
	Deployment(ctx context.Context, c pool.DeployModel) (pool.DeployModel, error)
}

// Agents is what can be asked of running agents. The hub's Service is one.
type Agents interface {
	// ReadLog asks a machine for a piece of what a run's program printed there.
	ReadLog(ctx context.Context, m domain.MachineID, w wire.LogWish) (wire.LogPiece, error)
	// Telemetry is what a machine last said of itself.
	Telemetry(m domain.MachineID) (wire.Telemetry, bool)
	// Contested names the machines with whose key two agent processes speak.
	Contested(ctx context.Context) ([]domain.MachineID, error)
}

// Enroller makes a machine's identity. It is implemented where identity and embedded server are wired together.
type Enroller interface {
	// NewAccount makes and stores the account of a machine and returns its public key.
	NewAccount(m domain.MachineID) (account string, err error)
	// Credential issues a user credential for the machine's nkey.
	Credential(m domain.MachineID, nkey string) (jwt string, err error)
}

// Views is what questions are answered from.
type Views struct {
	Engine    *projections.Engine
	Runs      *runs.View
	Fleet     *fleet.View
	Timeline  *timeline.View
	Observers *observers.View
	Keys      *keys.View
	Models    *models.View
	Usage     *usage.View
}

// NewViews makes the views and their engine.
func NewViews() Views {
	v := Views{Runs: runs.New(), Fleet: fleet.New(), Timeline: timeline.New(), Observers: observers.New(),
		Keys: keys.New(), Models: models.New(), Usage: usage.New()}
	v.Engine = projections.NewEngine(v.Runs, v.Fleet, v.Timeline, v.Observers, v.Keys, v.Models, v.Usage)
	return v
}

// Health says whether there is room for what comes.
type Health interface {
	// NewWork is nil when a new run and its data may be taken, Bytes when parts of runs under way may.
	NewWork() error
	Bytes() error
	Room() health.Room
}

// Config is what the gateway stands on. Every field without "may be" is needed.
type Config struct {
	Hub       Decider
	Agents    Agents
	Explain   Explainer
	Views     Views
	Log       broker.Log
	Blobs     broker.Blobs
	Registry  *event.Registry
	Operator  func(key string) bool // constant-time check of an operator key
	Enrol     Enroller
	Events    Events
	Observers ObserverKeeper
	Webhooks  Webhooks
	Metrics   http.Handler // Prometheus' text format
	Counts    Counts
	Inference func(pool.Where) inference.Backend // who answers for models there, nil for nobody
	Health    Health
	Door      *Door          // the port, if it was opened before; may be nil
	Websocket string         // loopback address of the embedded server's WebSocket listener
	PublicURL string         // what machines dial
	CA        []byte         // PEM
	Pin       identity.Pin   // of the CA, for join tokens
	Secret    []byte         // the hub's own: what repeated requests are told again follows from it
	Export    archive.Signer // signs runs that leave this hub
	HeadKey   []byte         // Ed25519 public key of signed heads
	Binary    string         // path of this program, offered for installation
	Version   string
	Now       func() time.Time
	NewID     func(prefix string) string // fresh ids
	Logger    zerolog.Logger
}

// Gateway serves the public port.
type Gateway struct {
	cfg        Config
	door       *Door
	handler    http.Handler
	v2         *v2.API
	base       context.Context
	enrolments *rate.Limiter
	sockets    *admission
	parts      *partsInFlight
	replays    chan struct{} // one at a time
	streams    *admission    // of events
	downloads  *admission    // of this program
	links      *admission    // that machines measure
	binary     fileSum
	storeSaid  rate.Sometimes // a store that takes nothing is said aloud now and then, not for each part
}

// storeSaidEvery spaces the hub's own complaints of a store that takes no parts.
const storeSaidEvery = 30 * time.Second

// New builds the gateway; Handler serves it in tests, Open behind a door that has started, Start on a port.
func New(cfg Config) *Gateway {
	g := &Gateway{
		cfg: cfg, door: cfg.Door, enrolments: rate.NewLimiter(enrolPerSecond, enrolBurst),
		sockets: newAdmission(maxWebsockets, maxWebsocketsByIP), parts: newPartsInFlight(), replays: make(chan struct{}, 1), streams: newAdmission(maxStreams, maxStreamsByIP),
		links: newAdmission(maxLinkTests, maxLinkTestsByIP), downloads: newAdmission(maxDownloads, maxDownloadsByIP),
		storeSaid: rate.Sometimes{First: 1, Interval: storeSaidEvery},
	}
	if g.door == nil {
		g.door = NewDoor(cfg.Logger)
	}
	g.base = g.door.base
	g.v2 = g.newV2()
	g.handler = g.routes()
	return g
}

// Handler is the whole public surface.
func (g *Gateway) Handler() http.Handler { return g.handler }

// Start serves TLS on the listener until Stop. It is called once.
func (g *Gateway) Start(l net.Listener, tlsConfig *tls.Config) {
	g.door.Start(l, tlsConfig)
	g.Open()
}

// Open lets the requests in that come to the door, those that wait at it first.
func (g *Gateway) Open() {
	g.v2.Start()
	g.door.admit(g)
}

// Stop stops the door and waits for the WebSockets that it does not know. It may be called without Start, and again.
func (g *Gateway) Stop() error {
	err := g.door.Stop()
	g.v2.Stop()                  // the hub still takes what it counted
	g.sockets.outstanding.Wait() // Shutdown does not know upgraded connections; their ends were cut by stop
	return err
}

// routes is the table of everything that can be reached. Without a key: health, enrolment, install, and the WebSocket,
// which the NATS server itself authenticates. Below /v2 keys, refusals and even unknown methods are V2's own, so that nothing of
// this table comes before it.
func (g *Gateway) routes() http.Handler {
	table := g.table()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rest, ok := strings.CutPrefix(r.URL.Path, "/v2"); ok && (rest == "" || rest[0] == '/') {
			g.v2.ServeHTTP(w, r)
			return
		}
		table.ServeHTTP(w, r)
	})
}

func (g *Gateway) table() http.Handler {
	r := chi.NewRouter()
	r.Use(g.recovered)
	r.Get("/healthz", g.health)
	r.Get("/install", g.installScript)
	r.Get("/install/tensorturn", g.installBinary)
	r.Get("/install/ca.pem", g.installCA)
	r.Post("/api/v1/enrol", g.enrol)
	r.Post("/api/v1/enrol/check", g.checkToken)
	r.Post("/api/v1/renew", g.renew) // by proof of the machine's key
	r.Get("/api/v1/self", g.self)    // by another proof of it
	ws := g.websocket()
	r.Handle("/nats", ws)
	r.Handle("/nats/*", ws)
	r.Group(func(r chi.Router) {
		r.Use(g.blobCaller)
		r.Post("/blobs/missing", g.blobsMissing)
		r.Head("/blobs/{digest}", g.blobHead)
		r.Get("/blobs/{digest}", g.blobGet)
		r.Put("/blobs/{digest}", g.blobPut)
		r.Head("/link", g.linkCaller(g.linkTrip))
		r.Get("/link", g.linkCaller(g.linkDown))
		r.Put("/link", g.linkCaller(g.linkUp))
	})
	r.Group(func(r chi.Router) {
		r.Use(g.keyed, g.idempotent)
		g.api(r)
		r.Get("/api/v1/log", g.readLog)
		r.Get("/api/v1/runs/{run}/export", g.exportRun)
		r.Get("/metrics", func(w http.ResponseWriter, r *http.Request) { g.cfg.Metrics.ServeHTTP(w, r) })
		r.Get("/api/v1/events", g.streamEvents)
		r.Get("/api/v1/events/schemas", g.eventSchemas)
		r.Get("/api/v1/events/asyncapi.json", g.eventDocument)
	})
	r.MethodNotAllowed(notAllowed)
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		g.refuse(w, domain.NotFound("serve "+domain.Clip(r.URL.Path, 80), "there is no such page", "the API is under /api/v1"))
	})
	return r
}

// schemaPrefix begins references to schemas in the OpenAPI document.
const schemaPrefix = "#/components/schemas/"

// apiText is the description in the OpenAPI document: what huma's routes do not show.
const apiText = "Every request carries `Authorization: Bearer <key>`: the operator's key, or one of `/api/v1/keys`. Deployed models are asked under `/v2` " +
	"by the Open Inference Protocol, with keys of their own. An observer's key may read runs, " +
	"machines, models and events and nothing else, or one run alone. A POST may carry `Idempotency-Key`, so that it can be " +
	"repeated when its answer got lost. Lists come in pages: `after`, `limit`, and a `Link` header with the next one. Besides the paths below: " +
	"`GET /api/v1/log?from=N` streams the records of the event log as lines of JSON; " +
	"`GET /api/v1/runs/<run>/export?events_only=` streams a run as one signed file (projections/archive); " +
	"`GET /api/v1/events?run=&kind=&after=&since=&follow=` streams events as server-sent events with CloudEvents in them, described at " +
	"`/api/v1/events/schemas` and `/api/v1/events/asyncapi.json`; `GET /metrics` is for Prometheus; `HEAD`, `PUT` and `GET /blobs/<sha256>` carry parts and manifests " +
	"of at most 8 MiB, and `POST /blobs/missing` says which of `digests` are not stored; `HEAD`, `PUT` and `GET /link?bytes=` move bytes that nobody keeps, with which machines measure their link. Every refusal is application/problem+json."

// api registers huma's routes.
func (g *Gateway) api(r chi.Router) huma.API {
	cfg := huma.DefaultConfig("tensorturn", g.cfg.Version)
	cfg.Info.Description = apiText
	cfg.OpenAPIPath, cfg.DocsPath, cfg.SchemasPath = "/api/v1/openapi", "", "/api/v1/schemas"
	cfg.CreateHooks = nil // bodies carry no link to their schema
	cfg.Transformers = []huma.Transformer{ownProblem}
	cfg.RejectUnknownQueryParameters = true
	cfg.Components.Schemas = huma.NewMapRegistry(schemaPrefix, schemaName)
	cfg.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"key": {Type: "http", Scheme: "bearer"}}
	cfg.Security = []map[string][]string{{"key": {}}}
	api := humachi.New(r, cfg)
	g.registerRuns(api)
	g.registerExplain(api)
	g.registerLogs(api)
	g.registerMachines(api)
	g.registerTokens(api)
	g.registerKeys(api)
	g.registerModels(api)
	g.registerLog(api)
	g.registerHealth(api)
	g.registerObservers(api)
	g.registerWebhooks(api)
	g.registerUsage(api)
	g.registerReplay(api)
	describeProblems(api.OpenAPI())
	describeKeys(api.OpenAPI())
	allowDefaults(api.OpenAPI().Components.Schemas)
	return api
}

// allowDefaults lets a submitted spec leave out whatever has a default, at every depth: huma takes every field for required.
func allowDefaults(schemas huma.Registry) {
	allowIn(schemas, "RunSpec", map[string]bool{})
}

func allowIn(schemas huma.Registry, name string, seen map[string]bool) {
	s := schemas.Map()[name]
	domain.Assert(s != nil, "the API has a schema "+name)
	if seen[name] {
		return
	}
	seen[name] = true
	s.Required = nil
	s.PrecomputeMessages()
	for _, p := range s.Properties { // each is set alone: order does not matter
		if part, ok := strings.CutPrefix(p.Ref, schemaPrefix); ok {
			allowIn(schemas, part, seen)
		}
	}
}

// schemaName puts the package before the type, since two packages may each have a Slot.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if p := path.Base(t.PkgPath()); t.Name() != "" && p != "." && p != "gateway" {
		return strings.ToUpper(p[:1]) + p[1:] + name
	}
	return name
}
