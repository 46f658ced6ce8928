package webhook

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker/feed"
	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Limits of hooks.
const (
	MaxHooks = 32   // each is a goroutine and a connection
	MaxDead  = 1000 // kept for a hook; one more stops it: somebody must look
)

// Config is what the hooks stand on.
type Config struct {
	Dir     string // one file for each hook, 0600
	Source  *feed.Source
	Private bool // receivers in private networks, and http, are allowed
	Version string
	Now     func() time.Time
	Logger  zerolog.Logger

	RetryFirst, RetryMost time.Duration // 0: one second, five minutes
}

// Hooks are all webhooks of a hub. Start, any calls, Stop.
type Hooks struct {
	cfg    Config
	client *http.Client

	mu      sync.Mutex
	workers map[string]*worker
	order   []string
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// New makes the hooks; nothing runs before Start.
func New(cfg Config) *Hooks {
	if cfg.RetryFirst == 0 {
		cfg.RetryFirst = time.Second
	}
	if cfg.RetryMost == 0 {
		cfg.RetryMost = 5 * time.Minute
	}
	return &Hooks{cfg: cfg, client: newClient(cfg.Private), workers: map[string]*worker{}}
}

// Start loads the hooks and begins to send.
func (h *Hooks) Start() error {
	list, err := load(h.cfg.Dir)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ctx, h.cancel = context.WithCancel(context.Background())
	for _, k := range list {
		if k.lost {
			h.cfg.Logger.Error().Str("webhook", k.ID).Str("next", "tensorturn webhook remove "+k.ID+", and create it anew").Msg("webhook stopped: " + k.Stopped)
		}
		h.begin(k)
	}
	return nil
}

// begin starts a hook's goroutine, under the lock.
func (h *Hooks) begin(k *Hook) {
	ctx, cancel := context.WithCancel(h.ctx)
	w := &worker{hooks: h, hook: *k, cancel: cancel, done: make(chan struct{}), again: make(chan struct{}, 1)}
	h.workers[k.ID] = w
	h.order = append(h.order, k.ID)
	h.running.Add(1)
	go func() {
		defer h.running.Done()
		defer close(w.done)
		w.run(ctx)
	}()
}

// Stop ends all deliveries, keeps every place, and waits. It may be called without Start.
func (h *Hooks) Stop() {
	h.mu.Lock()
	if h.cancel != nil {
		h.cancel()
	}
	h.mu.Unlock()
	h.running.Wait()
	h.client.CloseIdleConnections()
}

// Spec is what a new hook sends where.
type Spec struct {
	ID, Name, URL string
	Run           domain.RunID
	Kind          event.Kind
	After         uint64  // events up to here are not sent
	MadeBy        *Repeat // nil: the caller gave no idempotency key
}

// Create makes a hook and starts it. The result holds its secret: nothing else ever tells it.
func (h *Hooks) Create(s Spec) (Hook, error) {
	if err := checkURL(s.URL, h.cfg.Private); err != nil {
		return Hook{}, err
	}
	const op = "create webhook"
	switch {
	case !domain.ValidID(s.ID):
		return Hook{}, domain.Invalid(op, "it has no valid id", "")
	case s.Kind != "" && !s.Kind.Valid():
		return Hook{}, domain.Invalid(op, "kind is none of run, machine, pool", "")
	case len(s.Name) > domain.MaxNameLength:
		return Hook{}, domain.Invalid(op, "its name is too long", "")
	}
	secret, err := newSecret(rand.Reader)
	if err != nil {
		return Hook{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if k, err := h.again(s); k.ID != "" || err != nil {
		return k, err
	}
	switch {
	case h.ctx == nil || h.ctx.Err() != nil:
		return Hook{}, domain.Unavailable(op, "the hub is starting or stopping", "try again", nil)
	case len(h.workers) >= MaxHooks:
		return Hook{}, domain.Conflict(op, fmt.Sprintf("there are %d webhooks, the limit", MaxHooks), "remove one: tensorturn webhook list")
	case h.workers[s.ID] != nil:
		return Hook{}, domain.Conflict(op, "a webhook of this id exists", "try again: the id is drawn anew")
	}
	k := Hook{ID: s.ID, Name: s.Name, URL: s.URL, Run: s.Run, Kind: s.Kind, Secret: secret, Created: h.cfg.Now().UTC().Truncate(time.Second), After: s.After,
		MadeBy: s.MadeBy}
	if err := os.MkdirAll(h.cfg.Dir, 0o700); err != nil {
		return Hook{}, domain.Unavailable(op, "the directory cannot be made", "fix its owner", err)
	}
	if err := k.save(h.cfg.Dir); err != nil {
		return Hook{}, err
	}
	h.begin(&k)
	return k.told(), nil
}

// again finds the hook that an earlier request under the same key made, under the lock. Its ID is empty when there is none.
func (h *Hooks) again(s Spec) (Hook, error) {
	if s.MadeBy == nil {
		return Hook{}, nil
	}
	for _, id := range h.order {
		k := h.workers[id].change(func(*Hook) {})
		if k.MadeBy == nil || k.MadeBy.Key != s.MadeBy.Key {
			continue
		}
		if k.MadeBy.Request != s.MadeBy.Request {
			return Hook{}, domain.Conflict("repeat a request", "its idempotency key was used for another one", "use a fresh key for each request")
		}
		return k.told(), nil
	}
	return Hook{}, nil
}

// List gives the hooks without their secrets, oldest first.
func (h *Hooks) List() []Hook {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]Hook, 0, len(h.order))
	for _, id := range h.order {
		out = append(out, h.workers[id].picture())
	}
	slices.SortStableFunc(out, func(a, b Hook) int { return a.Created.Compare(b.Created) })
	return out
}

// Remove ends a hook and forgets it.
func (h *Hooks) Remove(id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.workers[id]
	if w == nil {
		return notFound("remove", id)
	}
	w.cancel()
	<-w.done // it holds no lock of ours while it sends
	delete(h.workers, id)
	h.order = slices.DeleteFunc(h.order, func(o string) bool { return o == id })
	if err := os.RemoveAll(filepath.Join(h.cfg.Dir, id+".json")); err != nil { // a folder, if that is what the disk made of it
		return domain.Unavailable("remove webhook "+id, "its file could not be removed", "remove it by hand", err)
	}
	return nil
}

// Redeliver sends the dead events of a hook once more, before whatever is new, and lets a stopped hook go on.
func (h *Hooks) Redeliver(id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.workers[id]
	if w == nil {
		return notFound("redeliver", id)
	}
	if w.change(func(*Hook) {}).lost {
		return domain.Conflict("redeliver webhook "+id, "its file is damaged: where it sends is not known", "remove it and create it anew")
	}
	select {
	case w.again <- struct{}{}:
	default: // it is asked already
	}
	return nil
}

func notFound(verb, id string) error {
	return domain.NotFound(verb+" webhook "+domain.Clip(id, domain.MaxIDLength), "there is no such webhook", "list them with: tensorturn webhook list")
}

// host is the receiver without the path, which may be a secret.
func host(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	h, _, _ := strings.Cut(rest, "/")
	return h
}
