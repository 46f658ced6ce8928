package hub

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"tensorturn/broker"
	"tensorturn/broker/snapshot"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Limits of the Service.
const (
	maxQueue       = 1024                   // inputs waiting for the loop; a full queue is answered "try again"
	maxReplies     = 1024                   // replies waiting to be encoded and sent; beyond it one is dropped and asked again
	gatherWindow   = 3 * time.Millisecond   // how long a busy loop waits for more before it commits
	stepTimeout    = 30 * time.Second       // one step, its append included; beyond it the log counts as unavailable
	longestTick    = time.Second            // ticks come every L/24, but at least this often
	shortestTick   = 100 * time.Millisecond // and no more often than this
	inspectWorkers = 2                      // deltas read at a time
	maxInspections = 1024                   // waiting; beyond it an inspection comes again after a pause
	maxMerges      = MaxLiveRuns            // waiting
)

// Link carries requests from agents and hints to them. The account is the caller's identity; no payload says who calls.
type Link interface {
	// Serve hands each request to handle, which must not block; reply may be called once, at any time, or never.
	Serve(handle func(account string, data []byte, reply func([]byte))) error
	// Wake hints to the machine of the account that it should sync now. A loss is allowed.
	Wake(account string)
	// Close ends serving: handle is not called after it returns.
	Close()
}

// Serving hears with each sync what a machine holds for predictions and says what it shall hold, nil for: as said before. It
// is no part of the log: a hub that starts asks again.
type Serving interface {
	Exchange(m domain.MachineID, h *wire.Holding, stopping bool) *wire.Holds
}

// ServiceConfig is what the Service stands on. Log, Registry and Blobs are needed.
type ServiceConfig struct {
	Core     Config // Replayed is the Service's own, see OnCommitted
	Log      broker.Log
	Registry *event.Registry
	Blobs    broker.Blobs
	Beats    broker.Heartbeats
	Link     Link
	// Renew issues a fresh credential for a machine.
	Renew func(domain.MachineID) (jwt string, err error)
	// Admit loads and CutOff ends what the outside holds of a machine: its account, its connections. They are called on
	// the loop, before the command that caused them is answered, and must be quick; Admit is also called for every
	// machine of the log at the start.
	Admit  func(domain.MachineID)
	CutOff func(domain.MachineID)
	// Heads signs positions of the log for the agents to keep; nil for none.
	Heads Heads
	// KeepHead stores the log's newest position outside the log, so that the next start can demand it (Config.Known). It is
	// called on a goroutine of its own, at most once in keepEvery while the log grows, and at Stop. Nil: it is not kept.
	KeepHead func(Position) error
	// Now is the wall clock with which decisions are made and facts are dated; nil for the machine's. Only its differences
	// decide anything, so it may be wrong by hours, and jump.
	Now func() time.Time
	// Serving says which models machines hold for predictions; nil: none.
	Serving Serving
	// Full reports whether the store takes no bytes now; nil for never.
	Full func() bool
	// Snapshots keeps frozen state, so that a start reads only what is behind it; nil: each start reads the whole log.
	// Version is the program's: a snapshot is for the program that wrote it.
	Snapshots Snapshots
	Version   string
	Logger    zerolog.Logger
}

// Service is the goroutine around Core: it collects inputs, gives time, delivers outputs, runs the workers.
// Start, then any number of calls from any goroutine, then Stop.
type Service struct {
	cfg  ServiceConfig
	core *Core // used by the loop alone

	listeners []func([]event.Envelope)
	followers []Follower
	whole     bool // a listener needs the log from its beginning
	snaps     snapshots
	below     atomic.Uint64 // verified below the snapshot of the start; allVerified when that is done
	queue     chan task
	replies   chan reply
	inspects  chan InspectJob
	merges    chan MergeJob
	votes     chan VoteJob
	returned  []Input // the loop's own: jobs that found their workers' queue full

	mu       sync.Mutex
	state    serviceState
	accounts map[string]domain.MachineID
	owners   map[domain.MachineID]string
	gates    map[domain.MachineID]*gate
	readOnly error
	wishes   wishes
	claims   *claims
	said     map[domain.MachineID]wire.Telemetry // newest of each machine
	merging  time.Time                           // when the merge under way began, zero when none

	// What the workers do with a job; tests that are not about weights put their own here before Start.
	inspect func(context.Context, InspectJob) Inspected
	merge   func(context.Context, MergeJob) Merged
	vote    func(context.Context, VoteJob) Counted
	stored  func(context.Context, domain.Digest) (bool, error)

	heads   *headKeeper
	at      atomic.Pointer[Position] // end of the log, set by the loop
	unkept  rate.Sometimes
	cancel  context.CancelFunc // ends the workers
	workers sync.WaitGroup
	loop    sync.WaitGroup
	closing chan struct{} // closed: take no more inputs
}

type serviceState int

const (
	stateNew serviceState = iota
	stateRunning
	stateStopped
)

// task is one thing for the loop: an input with somebody who waits for its answer, or a question.
type task struct {
	in     Input
	answer func(Answer) // called on the loop, may be nil
	after  func()       // called on the loop when the outputs are delivered, may be nil
	read   func(*Core)  // a question; in is nil then
}

// NewService makes a Service; nothing runs before Start.
func NewService(cfg ServiceConfig) *Service {
	s := &Service{
		cfg: cfg, queue: make(chan task, maxQueue), replies: make(chan reply, maxReplies),
		inspects: make(chan InspectJob, maxInspections), merges: make(chan MergeJob, maxMerges), votes: make(chan VoteJob, maxVotes),
		accounts: map[string]domain.MachineID{}, owners: map[domain.MachineID]string{}, gates: map[domain.MachineID]*gate{},
		said:    map[domain.MachineID]wire.Telemetry{},
		closing: make(chan struct{}), unkept: rate.Sometimes{First: 1, Interval: unkeptSaid},
	}
	s.heads = newHeadKeeper(cfg.Heads)
	s.claims = newClaims()
	w := weights{blobs: cfg.Blobs}
	s.inspect, s.merge, s.vote, s.stored = w.inspect, w.merge, w.vote, w.stored
	s.snaps.write = make(chan snapshot.Snapshot, 1)
	s.Follow(roster{s})
	return s
}

func (s *Service) now() time.Time {
	if s.cfg.Now == nil {
		return time.Now()
	}
	return s.cfg.Now()
}

// Start reads the log and begins to serve. A damaged log does not fail it: see ReadOnly.
func (s *Service) Start(ctx context.Context) error {
	s.mu.Lock()
	fresh := s.state == stateNew
	s.mu.Unlock()
	domain.Assert(fresh, "a Service is started once")
	cfg := s.cfg.Core
	cfg.Replayed = s.tell
	base, err := s.restore(ctx)
	if err != nil {
		return err
	}
	if s.cfg.Snapshots != nil && !s.whole {
		cfg.Base = func(ctx context.Context) *Base {
			if s.core.fold == nil { // Open: where the followers stand
				return base
			}
			return s.base(ctx)
		}
	}
	s.core = New(cfg, s.cfg.Log, s.cfg.Registry)
	began := s.snaps.last
	if err := s.core.Open(ctx, s.now()); err != nil {
		return err
	}
	domain.Assert(s.core.began.Seq == began, "Core begins where its followers do")
	s.noteReadOnly()
	s.noteHead()
	if s.cfg.Admit != nil {
		for _, m := range s.core.Machines() {
			if st, _ := s.core.Machine(m); st.Standing != revokedStanding {
				s.cfg.Admit(m)
			}
		}
	}
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	s.startWorkers(work, s.core.began)
	s.loop.Go(s.run)
	s.mu.Lock()
	s.state = stateRunning
	s.mu.Unlock()
	if s.cfg.Link != nil {
		if err := s.cfg.Link.Serve(s.handle); err != nil {
			s.Stop()
			return err
		}
	}
	return nil
}

// Stop takes no more inputs, decides those that wait, ends the workers and waits for all of it. A job cut short is
// asked again by the next start. Stop may be called twice, and before Start.
func (s *Service) Stop() {
	s.mu.Lock()
	was := s.state
	s.state = stateStopped
	s.mu.Unlock()
	if was == stateRunning {
		if s.cfg.Link != nil {
			s.cfg.Link.Close()
		}
		s.cancel()
		close(s.closing)
	}
	s.loop.Wait()
	s.workers.Wait()
	if was == stateRunning {
		s.saveHead(Position{})
		s.lastSnapshot()
	}
}
