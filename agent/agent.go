package agent

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/agent/cache"
	"tensorturn/agent/trainer"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/machine"
)

// Config is what an Agent needs. The ports are the caller's: it makes them before and closes them after.
type Config struct {
	Incarnation domain.Incarnation // drawn anew by each process
	Slots       int                // CPU slots; GOMAXPROCS stays as it is, all slots share the cores
	Build       string             // version, for people
	Seed        uint64             // of the jitter; draw it, so that agents differ
	StopLimit   time.Duration      // how long a drain may take, DefaultStopLimit when 0

	Transport Transport
	Blobs     Blobs
	Cache     *cache.Cache
	Trainer   trainer.Factory
	Sandbox   string // what holds owners' programs, for the machine's page
	Logs      Logs   // what they printed; nil: nothing
	Models    Models // runs deployed models for predictions; nil: this machine answers for none
	Questions Questions
	Room      int // models that it may hold at most
	// Vitals gives what the machine measures, with a number that grows with each measurement; it must not wait. Nil: nothing.
	Vitals func() (*machine.Vitals, uint64)
	// Labels are what the owner gave the agent for requirements of runs.
	Labels map[string]string
	// Away says why a slot cannot or shall not work now, nil when it can; it must not wait. Nil: all can.
	Away func(slot int) *wire.Away
	// Rest takes the owner's word at the hub on when this machine rests by itself, with every reply; it must not wait. Nil: nobody asks.
	Rest func(machine.Rest)
	// Measure takes a benchmark, while no slot has work; it ends soon after ctx does, and goes on where it was when it is called again.
	// Nil: this machine is never measured.
	Measure  func(ctx context.Context) (machine.Score, error)
	Devices  []string // by slot: the UUID of its GPU, empty for the CPU; nil: all are of the CPU
	Throttle float64  // slows trainers to this fraction of their speed, for trials; 0 and 1 leave them alone

	Head       []byte                                  // newest signed head kept on disk, may be empty
	SaveHead   func([]byte) error                      // keeps it; nil: it is not kept
	HeadSeq    func(head []byte) (seq uint64, ok bool) // of CoreConfig
	RenewAfter time.Duration                           // until half of the credential's life is over, 0 for never
	// SaveCredential keeps a fresh user JWT, has it used from now on, and says when half of its life is over. It is called
	// on a goroutine of the agent. Nil: credentials are not renewed.
	SaveCredential func(jwt string) (renewAfter time.Duration, err error)

	Clock func() time.Duration // since some start, running while the machine sleeps; nil: the system's
	Log   zerolog.Logger
}

// Agent runs Core: one loop goroutine owns it, one worker per slot performs, and three more talk to the hub, send blobs
// again and keep files; one loads deployed models, where it has some, and one measures the machine. Start may fail; Stop ends all of them and waits.
type Agent struct {
	cfg     Config
	core    *Core
	clock   func() time.Duration
	store   *store
	workers []*worker

	inputs  chan Input       // results; senders wait, the loop never does
	wake    chan struct{}    // holds one token
	drain   chan struct{}    // holds one token
	syncs   chan pendingSync // at most one waits
	resends *mailbox[domain.Digest]
	chores  *mailbox[Effect]
	pieces  []wire.LogPiece // for the next sync; the talker's own
	server  *server         // nil: no models
	bench   *bencher        // nil: never measured
	told    uint64          // number of the vitals that the hub has; the talker's own

	cancelSync context.CancelFunc // of the newest sync; owned by the loop

	mu     sync.Mutex
	state  state
	cancel context.CancelFunc
	done   chan struct{} // closed when every goroutine has ended
	reason string        // why the agent ended
}

type state int

const (
	stateNew state = iota
	stateRunning
	stateStopped
)

// New checks the configuration and makes an agent that does nothing yet.
func New(cfg Config) (*Agent, error) {
	const op = "make agent"
	switch {
	case cfg.Slots < 1 || cfg.Slots > domain.MaxSlotsPerMachine:
		return nil, domain.Invalid(op, "slots is out of range", "give 1 to 64 slots")
	case cfg.Throttle < 0 || cfg.Throttle > 1:
		return nil, domain.Invalid(op, "throttle is out of range", "give a number above 0, at most 1")
	case cfg.Devices != nil && len(cfg.Devices) != cfg.Slots:
		return nil, domain.Invalid(op, "devices are not one per slot", "")
	case domain.CheckLabels(op, "the agent", cfg.Labels) != nil:
		return nil, domain.CheckLabels(op, "the agent", cfg.Labels)
	case !domain.ValidID(string(cfg.Incarnation)):
		return nil, domain.Invalid(op, "incarnation is not an id", "")
	case cfg.Transport == nil || cfg.Blobs == nil || cfg.Cache == nil || cfg.Trainer == nil:
		return nil, domain.Invalid(op, "a port is missing", "")
	}
	if cfg.Clock == nil {
		cfg.Clock = sinceStart()
	}
	a := &Agent{
		cfg: cfg, clock: cfg.Clock, store: newStore(cfg.Cache, cfg.Blobs, cfg.Clock),
		core: NewCore(CoreConfig{
			Incarnation: cfg.Incarnation, Slots: cfg.Slots, Build: cfg.Build, Head: cfg.Head, HeadSeq: cfg.HeadSeq,
			RenewAfter: cfg.RenewAfter, StopLimit: cfg.StopLimit, Seed: cfg.Seed,
		}),
		inputs: make(chan Input, domain.MaxSlotsPerMachine), wake: make(chan struct{}, 1), drain: make(chan struct{}, 1),
		syncs: make(chan pendingSync, 1), resends: newMailbox[domain.Digest](), chores: newMailbox[Effect](), done: make(chan struct{}),
	}
	if cfg.Models != nil && cfg.Questions != nil && cfg.Room > 0 {
		a.server = newServer(cfg.Models, cfg.Questions, cfg.Room, a.hint, cfg.Log)
	}
	if cfg.Measure != nil {
		a.bench = newBencher(cfg.Measure, a.hint, cfg.Log)
	}
	return a, nil
}

// Start begins to work; it returns at once. A second Start, or one after Stop, is refused as domain.KindConflict.
func (a *Agent) Start() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != stateNew {
		return domain.Conflict("start agent", "it was started or stopped before", "make a new one")
	}
	all, err := a.cfg.Cache.Snapshots(a.cfg.Slots)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	for i, snaps := range all {
		if w, boundaries, ok := snaps.Found(); ok {
			a.core.Found(i, FoundWork(w, boundaries))
			a.cfg.Log.Info().Int("slot", i).Str("run", string(w.Run)).Int("chunks", len(w.Lines)).Msg("an earlier process has left trained chunks")
		}
		lost, err := a.cfg.Cache.Losses(i)
		if err != nil {
			cancel()
			return err
		}
		w := &worker{
			slot: i, device: a.device(i), store: a.store, open: a.cfg.Trainer, throttle: a.cfg.Throttle, clock: a.clock, snaps: snaps, loss: &losses{files: lost},
			log: a.cfg.Log.With().Int("slot", i).Logger(), box: newMailbox[task](),
			post: func(in Input) { a.post(ctx, in) },
		}
		a.workers = append(a.workers, w)
	}
	a.state, a.cancel = stateRunning, cancel
	a.cfg.Transport.OnWake(a.hint)
	go a.run(ctx)
	return nil
}

// device is the GPU of a slot, empty for the CPU.
func (a *Agent) device(slot int) string {
	if a.cfg.Devices == nil {
		return ""
	}
	return a.cfg.Devices[slot]
}

// hint lets the loop sync soon.
func (a *Agent) hint() {
	select {
	case a.wake <- struct{}{}:
	default: // a hint is waiting already
	}
}

// Drain asks to contribute what is trained and then to end (SIGTERM). Done tells when. Calling it again changes nothing.
func (a *Agent) Drain() {
	select {
	case a.drain <- struct{}{}:
	default:
	}
}

// Done is closed when the agent has ended, by itself or by Stop. It is never closed if the agent was never started.
func (a *Agent) Done() <-chan struct{} { return a.done }

// Reason says why the agent ended; empty before, and after Stop.
func (a *Agent) Reason() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reason
}

// Stop ends everything at once and waits. Work under way is lost to the hub, which requeues it. Safe to call often,
// from many goroutines, and before Start, which is then refused.
func (a *Agent) Stop() {
	a.mu.Lock()
	before := a.state
	a.state = stateStopped
	cancel := a.cancel
	a.mu.Unlock()
	if before == stateNew || cancel == nil {
		return
	}
	cancel()
	<-a.done
}

// run starts the workers, loops, and waits for them.
func (a *Agent) run(ctx context.Context) {
	defer close(a.done)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, w := range a.workers {
		wg.Go(func() { w.loop(ctx) })
	}
	wg.Go(func() { a.talk(ctx) })
	wg.Go(func() { a.sendAgain(ctx) })
	wg.Go(func() { a.keep(ctx) })
	if a.server != nil {
		wg.Go(func() { a.server.run(ctx) })
	}
	if a.bench != nil {
		wg.Go(func() { a.bench.run(ctx) })
	}
	reason := a.loop(ctx)
	cancel()
	wg.Wait()
	a.finishChores()
	a.mu.Lock()
	a.reason = reason
	a.mu.Unlock()
}

// post hands a result to the loop. It waits, unless the agent ends.
func (a *Agent) post(ctx context.Context, in Input) {
	select {
	case a.inputs <- in:
	case <-ctx.Done():
	}
}

// pendingSync is one sync for the talker.
type pendingSync struct {
	ctx     context.Context
	request wire.SyncRequest
}
