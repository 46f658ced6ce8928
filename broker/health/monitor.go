package health

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/domain"
)

// Timing of the watch. The promise is to work again within 10 s after the cause of a full store has ended.
const (
	lookEvery    = time.Second
	lookLimit    = 5 * time.Second  // a store that does not answer is not asked for longer
	recycleFirst = time.Second      // between two attempts to recycle, doubled up to
	recycleMost  = 4 * time.Second  //
	recycleLimit = 60 * time.Second // one attempt: the store recovers
)

// Config is what a Monitor stands on. Every function is called on its goroutine alone.
type Config struct {
	Dir     string // of the store
	MinFree int64  // bytes below which no new run is taken
	// Space gives the bytes free and in all on the disk of dir; DiskSpace in production.
	Space func(dir string) (free, total int64, err error)
	// Usage gives the shares of the streams.
	Usage func(ctx context.Context) ([]Share, error)
	// Broken says why the store takes no writes, "" when it does; Recycle makes it take them again.
	Broken  func() string
	Recycle func(ctx context.Context) error
	// Healed is told when the store takes writes again after it did not.
	Healed func()
	// ReadOnly is why the hub takes no commands at all, nil when it does.
	ReadOnly func() error
	Every    time.Duration // between two looks, 0: a second
	Logger   zerolog.Logger
}

// Room is what the newest look has seen. Its JSON is the API's contract.
type Room struct {
	State   State     `json:"state" enum:"starting,ready,low,full,read-only"`
	Why     string    `json:"why,omitempty" doc:"why it is not ready"`
	Free    int64     `json:"free_bytes" doc:"free on the disk of the store"`
	Total   int64     `json:"disk_bytes"`
	MinFree int64     `json:"min_free_bytes" doc:"below it no new run is taken, below a quarter of it no bytes"`
	Shares  []Share   `json:"shares"`
	Since   time.Time `json:"since" doc:"when it came into this state"`
	Healed  int       `json:"store_recycled" doc:"how often the embedded server was started anew because it had given up writing"`
}

// Monitor is the watch. New, Start, then questions from any goroutine, then Stop.
type Monitor struct {
	cfg  Config
	stop context.CancelFunc
	done chan struct{}

	mu   sync.Mutex
	room Room

	attempts int // recycles that failed in a row; the goroutine's own
	retry    time.Time
}

// New makes a Monitor that has looked at nothing yet: the hub is starting.
func New(cfg Config) *Monitor {
	if cfg.Every == 0 {
		cfg.Every = lookEvery
	}
	return &Monitor{cfg: cfg, room: Room{State: Starting, MinFree: cfg.MinFree, Since: time.Now(), Shares: []Share{}}}
}

// Start looks once and then goes on looking until Stop.
func (m *Monitor) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	m.stop, m.done = cancel, make(chan struct{})
	m.look(ctx, time.Now())
	go m.watch(ctx)
}

// Stop ends the watch and waits for it. It may be called without Start, and again.
func (m *Monitor) Stop() {
	if m.stop != nil {
		m.stop()
		<-m.done
	}
}

func (m *Monitor) watch(ctx context.Context) {
	defer close(m.done)
	tick := time.NewTicker(m.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			m.look(ctx, now)
		case <-ctx.Done():
			return
		}
	}
}

// look sees how the store is, recycles it where that helps, and tells changes.
func (m *Monitor) look(ctx context.Context, now time.Time) {
	before := m.Room()
	l := look{minFree: m.cfg.MinFree, broken: m.cfg.Broken(), shares: before.Shares}
	free, total, err := m.cfg.Space(m.cfg.Dir)
	if err != nil { // a disk that cannot be asked is no reason to stop working: a write will tell
		m.cfg.Logger.Debug().Err(err).Msg("free space not known")
		free, total = before.Free, before.Total
		if total == 0 {
			free = m.cfg.MinFree * 2
		}
	}
	l.free = free
	healed := false
	if l.broken != "" && l.free >= reserveOf(m.cfg.MinFree) && !now.Before(m.retry) {
		healed = m.recycle(ctx, now, l.broken)
		l.broken = m.cfg.Broken()
	}
	if l.broken == "" {
		asked, cancel := context.WithTimeout(ctx, lookLimit)
		if shares, err := m.cfg.Usage(asked); err == nil {
			l.shares = shares
		}
		cancel()
	}
	m.settle(l, total, now, healed)
	if healed || before.State == Full && m.Room().State != Full {
		m.cfg.Healed()
	}
}

// recycle starts the embedded server anew; it reports whether the store writes again.
func (m *Monitor) recycle(ctx context.Context, now time.Time, why string) bool {
	ctx, cancel := context.WithTimeout(ctx, recycleLimit)
	defer cancel()
	m.cfg.Logger.Warn().Str("why", why).Msg("the store takes no writes; starting the embedded server anew")
	if err := m.cfg.Recycle(ctx); err != nil {
		m.retry = now.Add(min(recycleFirst<<min(m.attempts, 8), recycleMost))
		m.attempts++
		m.cfg.Logger.Error().Err(err).Msg("the embedded server could not be started anew, tried again")
		return false
	}
	// Also after a success the next attempt waits: a disk that fails every write must not make a loop of restarts.
	m.retry = now.Add(min(recycleFirst<<min(m.attempts, 8), recycleMost))
	m.attempts++
	m.cfg.Logger.Info().Int64("took_ms", time.Since(now).Milliseconds()).Msg("the store takes writes again")
	return true
}

// settle keeps what was seen and says a change of state once.
func (m *Monitor) settle(l look, total int64, now time.Time, healed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &m.room
	state, why := judge(l, r.State)
	if err := m.cfg.ReadOnly(); err != nil {
		state, why = ReadOnly, err.Error()
	}
	was := r.State
	r.State, r.Why, r.Free, r.Total, r.Shares = state, why, l.free, total, l.shares
	if healed {
		r.Healed++
	}
	if state == Ready {
		m.attempts = max(0, m.attempts-1)
	}
	if state == was {
		return
	}
	r.Since = now
	switch state {
	case Low, Full:
		m.cfg.Logger.Error().Str("why", why).Str("next", next).Msg("the hub's store is " + string(state))
	case Ready:
		if was != Starting {
			m.cfg.Logger.Warn().Msg("the hub's store has room again")
		}
	}
}

// Room is what the newest look has seen.
func (m *Monitor) Room() Room {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.room
	r.Shares = append([]Share{}, r.Shares...)
	return r
}

// next is what a person can do about a store without room.
const next = "make room on the disk or raise the hub's store limit (--max-store); runs under way go on by themselves"

// NewWork is nil when a new run may begin.
func (m *Monitor) NewWork() error { return m.refuse("take new work", Low) }

// Bytes is nil when parts of blobs may be stored.
func (m *Monitor) Bytes() error { return m.refuse("store bytes", Full) }

// Full reports whether the store takes nothing at all now.
func (m *Monitor) Full() bool { return m.Bytes() != nil }

func (m *Monitor) refuse(op string, from State) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if rank(m.room.State) < rank(from) {
		return nil
	}
	what := "the store is full"
	if m.room.State == Low {
		what = "the store is nearly full"
	}
	return domain.Unavailable(op, what+": "+m.room.Why, next, nil)
}
