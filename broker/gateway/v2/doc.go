// Package v2 serves deployed models by the Open Inference Protocol V2 (kserve/open-inference-protocol, REST) with the
// binary tensor extension (triton-inference-server, docs/protocol/extension_binary_data.md): clients that exist work
// unmodified. Details of ensembles and the columns of tables go into parameters, never into new fields.
//
// It says who may ask, how much and how often, reads what came and writes what is answered; the answers are
// broker/inference's. It holds no key and no model. broker/gateway mounts it under /v2. Every refusal has the body
// {"error": "..."}, whatever the path. DESIGN.md has the path of one request, the limits and the conversions.
//
// Dependency: x/time/rate is the token bucket of a key.
package v2

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker/inference"
	"tensorturn/domain"
	"tensorturn/domain/pool"
	"tensorturn/projections/models"
)

// Limits of the API. Each refusal names the one that was met.
const (
	MaxBody      = 16 << 20         // bytes of one request: 4,096 rows of 300 features as text
	MaxRows      = 4096             // of one request
	MaxValues    = 4 << 20          // of one request: what MaxBody holds in the densest form
	MaxInflight  = 512              // requests in work whose body is at most smallBody; one key has at most as many as are free
	MaxLarge     = 8                // requests in work with a larger body; of these too
	smallBody    = 64 << 10         // a row of thousands of features
	bodyTime     = 30 * time.Second // for a body: 16 MiB at 4.5 Mbit/s
	answerTime   = 30 * time.Second // for an answer, once it is written
	MaxID        = 256              // bytes of a request's id, which is echoed
	MaxName      = 128              // bytes of a tensor's name
	MaxInputs    = 8                // tensors of a request; models have one
	MaxOutputs   = 8                // outputs asked for
	MaxDims      = 8                // of a tensor
	maxDepth     = 16               // of JSON that is skipped
	maxLimiters  = 2 * pool.MaxKeys // token buckets kept; beyond it all begin anew, full
	maxVersions  = 2 * pool.MaxModels * pool.MaxVersions
	burstSeconds = 1.0 // a key may save up one second of its rate
)

// Caller is whom a secret belongs to.
type Caller struct {
	Role  pool.Role
	Key   domain.KeyID
	Model domain.ModelID // the only one that a key of RoleModel may ask
	Rate  int            // requests in Per seconds
	Per   int
}

// Fault is why a secret belongs to nobody. Reason is counted, Why is told.
type Fault struct{ Reason, Why string }

// Counts are the figures kept for Prometheus.
type Counts interface {
	AuthFailed(reason string)
	Inferred(model domain.ModelID, code int, took time.Duration)
}

// Config is what the API stands on. Every field is needed.
type Config struct {
	Identify func(secret string) (Caller, *Fault)
	Model    func(domain.ModelID) (models.Model, bool)
	// Version joins a deployed version with the run that made it.
	Version func(models.Model, models.Version) (*inference.Version, error)
	Backend func(pool.Where) inference.Backend // nil: nobody answers there
	// Ready says why the server is not ready, nil when it is.
	Ready   func() error
	Counts  Counts
	Record  func(context.Context, []pool.InferenceCounted) error // records digests of usage
	Server  string                                               // version of the program
	Now     func() time.Time
	Logger  zerolog.Logger
	Every   time.Duration // between looks at usage to record; zero takes the default
	NoRates bool          // rates are not enforced: tests of other limits
}

// API is the handler of everything under /v2. Start begins to record usage, Stop ends it.
type API struct {
	cfg   Config
	small *places // of requests in work
	large *places
	rates rates
	made  versions
	usage *usage
	ended sync.Once
}

// New makes the handler.
func New(cfg Config) *API {
	a := &API{cfg: cfg, small: newPlaces(MaxInflight), large: newPlaces(MaxLarge)}
	a.usage = newUsage(cfg)
	return a
}

// Start begins to record usage.
func (a *API) Start() { a.usage.start() }

// Stop records what is left of the usage and returns. No request may come after it. It may be called again, and without Start.
func (a *API) Stop() { a.ended.Do(a.usage.stop) }

var _ http.Handler = (*API)(nil)
