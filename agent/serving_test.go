package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker/wire"
	"tensorturn/domain"
)

// playedModels answer 2x for a row x. Those in fails cannot be loaded.
type playedModels struct {
	mu     sync.Mutex
	loaded []domain.Digest
	fails  map[domain.Digest]bool
	block  chan struct{} // when set, predictions wait for it
	loads  int
}

func (p *playedModels) Load(_ context.Context, m Model) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fails[m.Weights] {
		return errors.New("no room on this disk")
	}
	p.loads++
	p.loaded = append(p.loaded, m.Weights)
	return nil
}

// count is how often a model was loaded.
func (p *playedModels) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loads
}

func (p *playedModels) Ready(m Model) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.loaded, m.Weights)
}

func (p *playedModels) Predict(ctx context.Context, m Model, x []float32) ([]float32, error) {
	p.mu.Lock()
	block := p.block
	p.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if x[0] == deadly {
		p.mu.Lock()
		p.loaded = slices.DeleteFunc(p.loaded, func(d domain.Digest) bool { return d == m.Weights })
		p.mu.Unlock()
		return nil, domain.Unavailable("predict", "the program died", "", nil)
	}
	if x[0] < 0 {
		return nil, domain.Invalid("predict", "a row is negative", "")
	}
	return []float32{2 * x[0]}, nil
}

func (p *playedModels) Keep(ms []Model) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loaded = slices.DeleteFunc(p.loaded, func(d domain.Digest) bool {
		return !slices.ContainsFunc(ms, func(m Model) bool { return m.Weights == d })
	})
}

// deadly is a row that ends the model.
const deadly = 666

// playedQuestions is the link.
type playedQuestions struct {
	ask  func([]byte)
	said chan *wire.Said
}

func (p *playedQuestions) OnAsk(f func([]byte)) { p.ask = f }

func (p *playedQuestions) Answer(b []byte) error {
	s, err := wire.DecodeSaid(b)
	p.said <- s
	return err
}

// serverWorld is a server in a bubble.
type serverWorld struct {
	t      *testing.T
	models *playedModels
	link   *playedQuestions
	s      *server
	hints  int
	stop   func()
}

func inServer(t *testing.T, f func(w *serverWorld)) {
	synctest.Test(t, func(t *testing.T) {
		w := &serverWorld{t: t, models: &playedModels{fails: map[domain.Digest]bool{}}, link: &playedQuestions{said: make(chan *wire.Said, 2*maxQuestions)}}
		w.s = newServer(w.models, w.link, 4, func() { w.hints++ }, zerolog.Nop())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.s.run(ctx) }()
		w.stop = func() { cancel(); <-done }
		synctest.Wait()
		f(w)
		w.stop()
	})
}

func weightsOf(n int) domain.Digest { return domain.Digest(fmt.Sprintf("%064x", n)) }

func (w *serverWorld) hold(mark string, ns ...int) {
	h := wire.Hold{Run: "r-1"}
	for _, n := range ns {
		h.Models = append(h.Models, wire.HeldModel{Weights: weightsOf(n)})
	}
	w.s.hold(&wire.Holds{Mark: mark, Runs: []wire.Hold{h}})
	synctest.Wait()
}

func (w *serverWorld) ask(id uint64, n int, x float32) {
	w.t.Helper()
	b, err := wire.EncodeAsk(&wire.Ask{ID: id, Run: "r-1", Weights: weightsOf(n), Rows: 1, Values: wire.PackValues([]float32{x}), Left: 5})
	if err != nil {
		w.t.Fatal(err)
	}
	w.link.ask(b)
	synctest.Wait()
}

// What the hub lists is loaded and reported by its place; what it lists no more is freed; what was ready is not loaded again.
func TestServerHolds(t *testing.T) {
	inServer(t, func(w *serverWorld) {
		if h := w.s.holding(); h.Room != 4 || h.Mark != "" {
			t.Errorf("at first: %+v", h)
		}
		w.hold("m1", 1, 2)
		if h := w.s.holding(); h.Mark != "m1" || !slices.Equal(h.Ready, []int{0, 1}) {
			t.Errorf("loaded: %+v", h)
		}
		w.hold("m2", 2, 3)
		if h := w.s.holding(); h.Mark != "m2" || !slices.Equal(h.Ready, []int{0, 1}) || !slices.Equal(w.models.loaded, []domain.Digest{weightsOf(2), weightsOf(3)}) {
			t.Errorf("another list: %+v, %v", h, w.models.loaded)
		}
		w.s.hold(&wire.Holds{Mark: wire.MarkAsks})
		if h := w.s.holding(); !h.Tells || len(h.List) != 2 || h.List[0].Weights != weightsOf(2) || h.Mark != "m2" {
			t.Errorf("asked by a hub that started anew: %+v", h)
		}
		if w.hints == 0 {
			t.Error("the hub was not told")
		}
	})
}

// A model that cannot be loaded is reported with the reason and tried again after a while, and holds up no other.
func TestServerTriesAgain(t *testing.T) {
	inServer(t, func(w *serverWorld) {
		w.models.fails[weightsOf(1)] = true
		w.hold("m1", 1, 2)
		h := w.s.holding()
		if !slices.Equal(h.Ready, []int{1}) || len(h.Failed) != 1 || h.Failed[0].Position != 0 || h.Failed[0].Error.Why != "no room on this disk" {
			t.Errorf("%+v", h)
		}
		w.models.mu.Lock()
		w.models.fails[weightsOf(1)] = false
		w.models.mu.Unlock()
		time.Sleep(2 * loadAgain)
		if h := w.s.holding(); !slices.Equal(h.Ready, []int{0, 1}) || len(h.Failed) > 0 {
			t.Errorf("later: %+v", h)
		}
	})
}

// A question is answered with values or an error; for what is not held, and beyond the limit, at once with "away".
func TestServerAnswers(t *testing.T) {
	inServer(t, func(w *serverWorld) {
		w.hold("m1", 1)
		w.ask(1, 1, 3)
		if s := <-w.link.said; s.ID != 1 || !slices.Equal(wire.UnpackValues(s.Values), []float32{6}) {
			t.Errorf("%+v", s)
		}
		w.ask(2, 1, -1)
		if s := <-w.link.said; s.Error == nil || s.Error.Kind != domain.KindInvalid {
			t.Errorf("%+v", s)
		}
		w.ask(3, 2, 1)
		if s := <-w.link.said; !s.Away {
			t.Errorf("a model that is not held: %+v", s)
		}
		for _, noise := range [][]byte{nil, []byte("attack"), {0x80}} {
			w.link.ask(noise)
		}
		w.models.mu.Lock()
		w.models.block = make(chan struct{})
		w.models.mu.Unlock()
		for i := range maxQuestions {
			w.ask(uint64(10+i), 1, 1)
		}
		w.ask(99, 1, 1)
		if s := <-w.link.said; s.ID != 99 || !s.Away {
			t.Errorf("beyond the limit: %+v", s)
		}
		close(w.models.block)
		synctest.Wait()
		if n := len(w.link.said); n != maxQuestions {
			t.Errorf("%d answers", n)
		}
	})
}

// A model that breaks at work is away at once and loaded anew, after a pause that grows while it goes on breaking. Rows that it
// refuses change nothing.
func TestServerLoadsAnew(t *testing.T) {
	inServer(t, func(w *serverWorld) {
		w.hold("m1", 1)
		for i, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			w.ask(1, 1, deadly)
			if s := <-w.link.said; s.Error == nil || s.Error.Kind != domain.KindUnavailable {
				t.Fatalf("%+v", s)
			}
			if h := w.s.holding(); len(h.Ready) > 0 || len(h.Failed) > 0 {
				t.Errorf("broken: %+v", h)
			}
			w.ask(2, 1, 3)
			if s := <-w.link.said; !s.Away {
				t.Errorf("broken, and asked: %+v", s)
			}
			time.Sleep(pause*time.Second - time.Millisecond)
			if w.models.count() != i+1 {
				t.Errorf("break %d: loaded before the pause of %d s is over", i, pause)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if h := w.s.holding(); w.models.count() != i+2 || len(h.Ready) != 1 {
				t.Errorf("break %d: after %d s %d loads, %+v", i, pause, w.models.count(), h)
			}
		}
		w.ask(3, 1, -1)
		if s := <-w.link.said; s.Error == nil || len(w.s.holding().Ready) != 1 {
			t.Errorf("rows that are refused: %+v, %+v", s, w.s.holding())
		}
		time.Sleep(brokenCalm)
		w.ask(4, 1, deadly)
		<-w.link.said
		time.Sleep(brokenFirst + time.Millisecond)
		synctest.Wait()
		if len(w.s.holding().Ready) != 1 {
			t.Error("calm for a while, and the pause is still long")
		}
	})
}

// Stopping ends questions under way and waits for them; what comes later is away.
func TestServerStops(t *testing.T) {
	inServer(t, func(w *serverWorld) {
		w.hold("m1", 1)
		w.models.mu.Lock()
		w.models.block = make(chan struct{})
		w.models.mu.Unlock()
		w.ask(1, 1, 1)
		w.stop()
		if s := <-w.link.said; s.Error == nil {
			t.Errorf("%+v", s)
		}
		w.ask(2, 1, 1)
		if s := <-w.link.said; !s.Away {
			t.Errorf("after the end: %+v", s)
		}
	})
}
