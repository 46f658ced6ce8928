package inference

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

// Limits of an engine.
const (
	MaxLoaded      = 320              // models in memory: one ensemble of the most members, and some more
	MaxLoadedBytes = 4 << 30          // their weights, with what a trainer keeps beside them
	weightCopies   = 5                // bytes that a loaded model takes for each byte of weights: gradients and two moments too
	loadTime       = 2 * time.Minute  // for one model
	reloadAfter    = 5 * time.Second  // a model that could not be loaded is not tried again before
	maxFailures    = 2 * MaxLoaded    // remembered; beyond it all are forgotten, and tried again
	waitTime       = 30 * time.Second // a request waits no longer for its turn
)

// Config is what an engine stands on.
type Config struct {
	Blobs  Blobs
	Load   Loader
	Now    func() time.Time
	Logger zerolog.Logger

	// Limits, for tests; zero takes the constants.
	Loaded      int
	LoadedBytes int64
}

// Blobs gives stored objects by their digests, which a blob.Reader checks.
type Blobs interface {
	Get(ctx context.Context, d domain.Digest) ([]byte, error)
}

// Engine holds loaded models. It is safe for concurrent use. Stop ends it.
type Engine struct {
	cfg   Config
	base  context.Context
	stop  context.CancelFunc
	loads sync.WaitGroup

	mu     sync.Mutex
	models map[modelKey]*loaded
	bytes  int64
	clock  uint64 // counts uses, for the least recent one
	failed map[modelKey]failure
}

// modelKey names one model by what it is made of: versions that share it share the memory.
type modelKey struct {
	run     domain.RunID
	member  int
	weights domain.Digest
}

// loaded is a model in memory, or on its way there.
type loaded struct {
	key   modelKey
	ready chan struct{} // closed when unit or err is set
	unit  *unit
	err   error
	bytes int64
	refs  int    // requests that use it
	used  uint64 // the engine's clock at the last use
}

type failure struct {
	err error
	at  time.Time
}

// New makes an engine that holds nothing.
func New(cfg Config) *Engine {
	if cfg.Loaded == 0 {
		cfg.Loaded = MaxLoaded
	}
	if cfg.LoadedBytes == 0 {
		cfg.LoadedBytes = MaxLoadedBytes
	}
	e := &Engine{cfg: cfg, models: map[modelKey]*loaded{}, failed: map[modelKey]failure{}}
	e.base, e.stop = context.WithCancel(context.Background())
	return e
}

// Stop ends loads under way and frees every model. No request may be running or come after it.
func (e *Engine) Stop() {
	e.stop()
	e.loads.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	for k, l := range e.models {
		e.drop(k, l)
	}
}

// acquire gives a loaded model, loading it when nobody has, and a function that gives it back.
func (e *Engine) acquire(ctx context.Context, v *Version, m Member) (*loaded, error) {
	k := modelKey{v.Run, m.Number, m.Weights}
	e.mu.Lock()
	l, ok := e.models[k]
	if !ok {
		var err error
		if l, err = e.begin(k, v, m); err != nil {
			e.mu.Unlock()
			return nil, err
		}
	}
	l.refs++
	e.clock++
	l.used = e.clock
	e.mu.Unlock()
	select {
	case <-l.ready:
	default:
		select {
		case <-l.ready:
		case <-ctx.Done():
			e.release(l)
			return nil, domain.Unavailable("load model "+string(v.Model), "it was not loaded in time", "try again", ctx.Err())
		}
	}
	if l.err != nil {
		e.release(l)
		return nil, l.err
	}
	return l, nil
}

func (e *Engine) release(l *loaded) {
	e.mu.Lock()
	l.refs--
	if l.unit != nil && l.unit.broken() && e.models[l.key] == l {
		delete(e.models, l.key) // the next request loads it anew
	}
	if l.refs == 0 && e.models[l.key] != l {
		e.drop(l.key, l)
	}
	e.mu.Unlock()
}

// begin starts to load a model. The caller holds the lock.
func (e *Engine) begin(k modelKey, v *Version, m Member) (*loaded, error) {
	if f, ok := e.failed[k]; ok {
		if e.cfg.Now().Sub(f.at) < reloadAfter {
			return nil, f.err
		}
		delete(e.failed, k)
	}
	if e.base.Err() != nil {
		return nil, domain.Unavailable("load model "+string(v.Model), "the hub is stopping", "try again", nil)
	}
	if !e.room(e.cfg.Loaded-1, e.cfg.LoadedBytes) {
		return nil, domain.Unavailable("load model "+string(v.Model), fmt.Sprintf("%d models are in memory and in use, the limit", len(e.models)), "try again", nil)
	}
	l := &loaded{key: k, ready: make(chan struct{})}
	e.models[k] = l
	e.loads.Go(func() { e.load(l, v, m) })
	return l, nil
}

// load fills l.
func (e *Engine) load(l *loaded, v *Version, m Member) {
	ctx, cancel := context.WithTimeout(e.base, loadTime)
	defer cancel()
	began := time.Now()
	p, bytes, err := e.build(ctx, v, m)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil && !e.room(e.cfg.Loaded, e.cfg.LoadedBytes-bytes) {
		p.Close()
		err = domain.Unavailable("load model "+string(v.Model), fmt.Sprintf("it needs %d MiB beside the models in use", bytes>>20), "try again, or retire others", nil)
	}
	if err != nil {
		l.err = err
		delete(e.models, l.key) // who waits is told; who comes later finds the failure
		if len(e.failed) >= maxFailures {
			clear(e.failed)
		}
		e.failed[l.key] = failure{err, e.cfg.Now()}
		e.cfg.Logger.Error().Str("model", string(v.Model)).Int("version", v.Number).Int("member", m.Number).Err(err).Msg("model not loaded")
	} else {
		l.unit, l.bytes = newUnit(e.base, p), bytes
		e.bytes += bytes
		e.cfg.Logger.Info().Str("model", string(v.Model)).Int("version", v.Number).Int("member", m.Number).
			Int64("took_ms", time.Since(began).Milliseconds()).Msg("model loaded")
	}
	close(l.ready)
	if l.refs == 0 && e.models[l.key] != l { // forgotten meanwhile, and nobody waits
		e.drop(l.key, l)
	}
}

// build reads and checks what the model is made of. A blob that is not what its digest says ends it.
func (e *Engine) build(ctx context.Context, v *Version, m Member) (p Predictor, bytes int64, err error) {
	op := fmt.Sprintf("load model %s version %d", v.Model, v.Number)
	defer func() {
		if r := recover(); r != nil { // a loader that fails inside must not take the hub with it
			err = &domain.Error{Kind: domain.KindInternal, Op: op, Why: fmt.Sprint("panic: ", r)}
		}
	}()
	data, err := blob.Open(ctx, v.Data.Blob, e.cfg.Blobs.Get)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", op, err)
	}
	weights, err := blob.Open(ctx, m.Weights, e.cfg.Blobs.Get)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", op, err)
	}
	bytes = weights.Size() * weightCopies
	if bytes > e.cfg.LoadedBytes {
		return nil, 0, domain.Invalid(op, fmt.Sprintf("it needs %d MiB of memory, the hub has %d MiB for models", bytes>>20, e.cfg.LoadedBytes>>20), "")
	}
	p, err = e.cfg.Load(ctx, Source{Run: v.Run, Spec: v.Spec, Member: m.Number, Dataset: v.Data, Data: data, Weights: weights})
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", op, err)
	}
	if got := safetensors.LayoutDigest(p.Layout()); got != m.Layout {
		p.Close()
		return nil, 0, domain.Integrity(op, "its tensors are not those that were deployed", "deploy the run again")
	}
	return p, bytes, nil
}

// room drops models that nobody uses, least recently used first, until at most count models and size bytes are left. The
// caller holds the lock. It reports whether that was possible.
func (e *Engine) room(count int, size int64) bool {
	for len(e.models) > count || e.bytes > size {
		var oldest *loaded
		for _, l := range e.models {
			if l.refs == 0 && l.unit != nil && (oldest == nil || l.used < oldest.used) {
				oldest = l
			}
		}
		if oldest == nil {
			return false
		}
		e.drop(oldest.key, oldest)
	}
	return true
}

// drop frees a model. The caller holds the lock.
func (e *Engine) drop(k modelKey, l *loaded) {
	if e.models[k] == l {
		delete(e.models, k)
	}
	if l.unit == nil {
		return
	}
	e.bytes -= l.bytes
	if err := l.unit.predictor.Close(); err != nil {
		e.cfg.Logger.Warn().Err(err).Msg("model not closed")
	}
	l.unit = nil
}

// Load loads one model of a version, or says why it cannot.
func (e *Engine) Load(ctx context.Context, v *Version, m Member) error {
	l, err := e.acquire(ctx, v, m)
	if err == nil {
		e.release(l)
	}
	return err
}

// Holds reports whether a model is in memory, or on its way there.
func (e *Engine) Holds(run domain.RunID, member int, weights domain.Digest) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.models[modelKey{run, member, weights}] != nil
}

// Forget frees the models for which keep says no, those in use as soon as nobody uses them, and lets what failed be tried anew.
func (e *Engine) Forget(keep func(run domain.RunID, member int, weights domain.Digest) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for k, l := range e.models {
		if keep(k.run, k.member, k.weights) {
			continue
		}
		if l.refs == 0 && l.unit != nil {
			e.drop(k, l)
		} else {
			delete(e.models, k) // its last user frees it
		}
	}
	clear(e.failed)
}

// members lists what a version is made of: its members, or the one model.
func (v *Version) members() []Member {
	if len(v.Members) > 0 {
		return v.Members
	}
	return []Member{{Weights: v.Weights, Layout: v.Layout}}
}

// Servable says why this process cannot answer for runs of the spec, nil when it can.
func Servable(s run.Spec) error {
	if s.Trainer == run.Process {
		return domain.Conflict("serve a model", "only its own program can run it, and the hub runs no programs", "deploy it with --on agents")
	}
	return nil
}
