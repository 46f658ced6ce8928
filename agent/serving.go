package agent

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// Limits of predictions on this machine. They share it with training so: a model that is held takes no slot, and a slot's lease
// knows nothing of it; memory is bounded by Models, passes by half of the cores (cmd), questions by maxQuestions.
const (
	maxQuestions = 64               // at work or waiting for a model's turn; the hub asks another machine beyond it
	loadLimit    = 3 * time.Minute  // for one model, its download included
	loadAgain    = 30 * time.Second // after a failure
	brokenFirst  = time.Second      // a model that broke at work is loaded again after it, the next time after twice as long
	brokenMost   = time.Minute      // and at last after this long: rows that end a program must not keep the machine starting it
	brokenCalm   = 10 * time.Minute // without a break, and the first pause counts again
)

// Model is one deployed model as this machine is told to hold it.
type Model struct {
	Run     domain.RunID
	Spec    run.Spec // the run's, not a member's
	Data    run.Dataset
	Member  int // of an ensemble, from 1; 0 for a fused run's model
	Weights domain.Digest
	Layout  domain.Digest
}

// Models runs models for predictions. Safe for concurrent use.
type Models interface {
	// Load makes a model ready: fetched, its digests checked, started.
	Load(ctx context.Context, m Model) error
	// Predict gives probabilities [rows, classes] for raw features [rows, columns]. Errors of domain.KindInvalid are the rows'.
	Predict(ctx context.Context, m Model, features []float32) ([]float32, error)
	// Ready reports whether the model is still loaded: one that broke must be loaded anew.
	Ready(m Model) bool
	// Keep frees every model that is not listed.
	Keep(ms []Model)
}

// Questions carries the hub's questions and the answers to them.
type Questions interface {
	// OnAsk names the function to call with each encoded wire.Ask. It does not block. Called once.
	OnAsk(func([]byte))
	// Answer sends an encoded wire.Said; a loss is allowed.
	Answer(said []byte) error
}

// modelKey names a model.
type modelKey struct {
	run     domain.RunID
	member  int
	weights domain.Digest
}

func (m Model) key() modelKey { return modelKey{m.Run, m.Member, m.Weights} }

// server holds deployed models for the hub. One goroutine loads, and each question has its own.
type server struct {
	models Models
	out    Questions
	room   int
	hint   func() // there is news for the hub
	log    zerolog.Logger

	news    chan struct{} // holds one token: the list has changed
	places  chan struct{} // of questions
	serving sync.WaitGroup

	mu     sync.Mutex
	mark   string
	tells  bool // the hub asked what is on the list
	list   []*held
	byKey  map[modelKey]*held
	ctx    context.Context // of questions; nil while nobody is served
	closed bool
}

// held is a model on the list.
type held struct {
	model  Model
	ready  bool
	failed error
	again  time.Time // when one that failed or broke is tried next

	pause time.Duration // after the last break
	broke time.Time     // the last time
}

func newServer(models Models, out Questions, room int, hint func(), log zerolog.Logger) *server {
	return &server{models: models, out: out, room: min(room, wire.MaxHeld), hint: hint, log: log,
		news: make(chan struct{}, 1), places: make(chan struct{}, maxQuestions), byKey: map[modelKey]*held{}}
}

// holding is what the next sync says.
func (s *server) holding() *wire.Holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &wire.Holding{Room: s.room, Mark: s.mark}
	if s.tells {
		h.Tells = true
		for _, m := range s.list {
			h.List = append(h.List, wire.HeldKey{Run: m.model.Run, Member: m.model.Member, Weights: m.model.Weights})
		}
	}
	for i, m := range s.list {
		switch {
		case m.ready:
			h.Ready = append(h.Ready, i)
		case m.failed != nil:
			h.Failed = append(h.Failed, wire.FailedHold{Position: i, Error: *wire.ErrorOf(m.failed)})
		}
	}
	return h
}

// hold takes the hub's list. What was ready stays ready.
func (s *server) hold(in *wire.Holds) {
	if in == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.Mark == s.mark {
		return
	}
	if in.Mark == wire.MarkAsks {
		s.tells = true
		s.hint()
		return
	}
	var list []*held
	byKey := map[modelKey]*held{}
	for _, r := range in.Runs {
		for _, w := range r.Models {
			m := Model{Run: r.Run, Spec: r.Spec, Data: r.Data, Member: w.Member, Weights: w.Weights, Layout: w.Layout}
			h := s.byKey[m.key()]
			if h == nil {
				h = &held{model: m}
			}
			list, byKey[m.key()] = append(list, h), h
		}
	}
	s.mark, s.list, s.byKey, s.tells = in.Mark, list, byKey, false
	s.look()
}

// look lets the loader look at the list. The caller holds the lock.
func (s *server) look() {
	select {
	case s.news <- struct{}{}:
	default:
	}
	s.hint() // the new mark is news as well
}

// run loads what is listed, one model after another, until ctx ends; then it waits for the questions under way.
func (s *server) run(ctx context.Context) {
	s.mu.Lock()
	s.ctx = ctx
	s.mu.Unlock()
	s.out.OnAsk(s.ask)
	defer func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.serving.Wait()
	}()
	retry := time.NewTimer(loadAgain)
	defer retry.Stop()
	for {
		select {
		case <-s.news:
			s.mu.Lock()
			var keep []Model
			for _, h := range s.list {
				keep = append(keep, h.model)
			}
			s.mu.Unlock()
			s.models.Keep(keep)
		case <-retry.C:
		case <-ctx.Done():
			return
		}
		for h := s.next(); h != nil && ctx.Err() == nil; h = s.next() {
			s.load(ctx, h)
			if len(s.news) > 0 {
				break // what is not wanted any more is freed first
			}
		}
		retry.Reset(s.untilNext())
	}
}

// untilNext is the time until a model may be tried again, at most loadAgain.
func (s *server) untilNext() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := loadAgain
	for _, h := range s.list {
		if !h.ready {
			left = min(left, max(time.Until(h.again), time.Millisecond))
		}
	}
	return left
}

// next is the first model that is neither ready nor to be left alone for now.
func (s *server) next() *held {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, h := range s.list {
		if !h.ready && !now.Before(h.again) {
			return h
		}
	}
	return nil
}

func (s *server) load(ctx context.Context, h *held) {
	limited, cancel := context.WithTimeout(ctx, loadLimit)
	defer cancel()
	began := time.Now()
	err := s.models.Load(limited, h.model)
	if ctx.Err() != nil {
		return
	}
	l := s.log.With().Str("run", string(h.model.Run)).Int("member", h.model.Member).Int64("took_ms", time.Since(began).Milliseconds()).Logger()
	s.mu.Lock()
	h.ready, h.failed = err == nil, err
	if err != nil {
		h.again = time.Now().Add(loadAgain)
	}
	s.mu.Unlock()
	if err != nil {
		l.Error().Err(err).Msg("model not ready for predictions")
	} else {
		l.Info().Msg("model ready for predictions")
	}
	s.hint()
}

// ask takes the hub's bytes. It does not block: beyond the limit, and for a model that is not ready, the hub asks another machine.
func (s *server) ask(b []byte) {
	a, err := wire.DecodeAsk(b)
	if err != nil {
		s.log.Warn().Err(err).Msg("unreadable question")
		return
	}
	s.mu.Lock()
	h := s.byKey[modelKey{a.Run, a.Member, a.Weights}]
	ready := h != nil && h.ready && !s.closed
	full := false
	if ready {
		select {
		case s.places <- struct{}{}:
			s.serving.Add(1)
		default:
			full = true
		}
	}
	ctx := s.ctx
	s.mu.Unlock()
	if !ready || full {
		s.say(&wire.Said{ID: a.ID, Away: true})
		return
	}
	go func() {
		defer s.serving.Done()
		defer func() { <-s.places }()
		said := s.answer(ctx, h.model, a)
		if said.Error != nil && !s.models.Ready(h.model) {
			s.lost(h)
		}
		s.say(said)
	}()
}

// lost notes that a model broke at work: it is loaded anew after a while, and the hub asks other machines meanwhile.
func (s *server) lost(h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !h.ready {
		return // by another question
	}
	now := time.Now()
	if now.Sub(h.broke) >= brokenCalm {
		h.pause = 0
	}
	h.pause = min(max(2*h.pause, brokenFirst), brokenMost)
	h.ready, h.broke, h.again = false, now, now.Add(h.pause)
	s.log.Warn().Str("run", string(h.model.Run)).Int("member", h.model.Member).Int64("again_ms", h.pause.Milliseconds()).Msg("model broke, it is loaded anew")
	s.look()
}

func (s *server) answer(ctx context.Context, m Model, a *wire.Ask) *wire.Said {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(a.Left*float64(time.Second)))
	defer cancel()
	p, err := s.models.Predict(ctx, m, wire.UnpackValues(a.Values))
	if err != nil {
		return &wire.Said{ID: a.ID, Error: wire.ErrorOf(err)}
	}
	return &wire.Said{ID: a.ID, Values: wire.PackValues(p)}
}

func (s *server) say(said *wire.Said) {
	b, err := wire.EncodeSaid(said)
	if err == nil {
		err = s.out.Answer(b)
	}
	if err != nil {
		s.log.Warn().Err(err).Msg("answer not sent")
	}
}
