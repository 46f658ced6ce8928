package inference_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"tensorturn/broker/inference"
	"tensorturn/broker/memory"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
	"tensorturn/domain/vote"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// facts of every model here: one column, three classes. A model is a number n; a row x is of class (x+n) modulo 3.
var facts = inference.Facts{Columns: []string{"x"}, Classes: []string{"a", "b", "c"}}

var layout = []safetensors.Tensor{{Name: "n", DType: safetensors.F32, Shape: []int64{1}}}

// world is an engine over a store in memory, and a loader that counts.
type world struct {
	t      testing.TB
	blobs  *memory.Blobs
	engine *inference.Engine
	data   domain.Digest

	mu     sync.Mutex
	now    time.Time
	loads  int
	open   int           // predictors that are not closed
	passes []int         // rows of each
	slow   chan struct{} // when set, a pass waits for it
	began  chan struct{} // a pass has begun
	queued int
	hold   chan struct{} // when set, loading waits for it
}

func newWorld(t testing.TB, tune ...func(*inference.Config)) *world {
	w := &world{t: t, blobs: memory.NewBlobs(time.Now, nil), now: time.Unix(1e9, 0), began: make(chan struct{}, 1024)}
	w.data = w.store([]byte("data"))
	cfg := inference.Config{Blobs: w.blobs, Load: w.load, Now: w.clock, Logger: zerolog.Nop()}
	for _, f := range tune {
		f(&cfg)
	}
	w.engine = inference.New(cfg)
	t.Cleanup(func() {
		w.engine.Stop()
		if w.open != 0 {
			t.Errorf("%d models are still open", w.open)
		}
	})
	return w
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) later(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) store(b []byte) domain.Digest {
	w.t.Helper()
	out := blob.NewWriter(context.Background(), w.blobs.Put)
	if _, err := out.Write(b); err != nil {
		w.t.Fatal(err)
	}
	id, err := out.Close()
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// model stores a model's weights.
func (w *world) model(n int) domain.Digest {
	return w.store(binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(n))))
}

// version is a single model.
func (w *world) version(n int) *inference.Version {
	return &inference.Version{Model: "m", Number: n + 1, Run: "r-1", Data: run.Dataset{Blob: w.data}, Weights: w.model(n), Layout: safetensors.LayoutDigest(layout)}
}

// ensemble is one of several, with equal weights.
func (w *world) ensemble(ns ...int) *inference.Version {
	v := &inference.Version{Model: "e", Number: 1, Run: "r-1", Data: run.Dataset{Blob: w.data}, Vote: vote.Combiner{Rule: vote.Mean, Temperature: 1}}
	for i, n := range ns {
		v.Members = append(v.Members, inference.Member{Number: i + 1, Weights: w.model(n), Layout: safetensors.LayoutDigest(layout)})
		v.Vote.Weights = append(v.Vote.Weights, 1/float64(len(ns)))
	}
	return v
}

func (w *world) load(ctx context.Context, s inference.Source) (inference.Predictor, error) {
	w.mu.Lock()
	w.loads++
	hold := w.hold
	w.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	b, err := io.ReadAll(s.Weights)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.open++
	w.mu.Unlock()
	return &predictor{w: w, n: int(math.Float32frombits(binary.LittleEndian.Uint32(b)))}, nil
}

type predictor struct {
	w    *world
	n    int
	busy sync.Mutex
	done bool
}

func (p *predictor) Facts() inference.Facts       { return facts }
func (p *predictor) Layout() []safetensors.Tensor { return layout }

func (p *predictor) Predict(_ context.Context, x []float32) ([]float32, error) {
	if !p.busy.TryLock() {
		panic("two passes at once")
	}
	defer p.busy.Unlock()
	if p.done {
		panic("a pass after Close")
	}
	p.w.mu.Lock()
	p.w.passes = append(p.w.passes, len(x))
	slow := p.w.slow
	p.w.mu.Unlock()
	if slow != nil {
		p.w.began <- struct{}{}
		<-slow
	}
	out := make([]float32, 3*len(x))
	for i, v := range x {
		switch {
		case v == -1:
			return nil, domain.Invalid("predict", "a row is -1", "")
		case v == -2:
			panic("a bug")
		}
		for c := range 3 {
			out[3*i+c] = 0.1
		}
		out[3*i+(int(v)+p.n)%3] = 0.8
	}
	return out, nil
}

func (p *predictor) Close() error {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.done {
		panic("closed twice")
	}
	p.done = true
	p.w.open--
	return nil
}

// class asks for one row and gives its class.
func (w *world) class(v *inference.Version, x float32) (int, error) {
	a, err := w.engine.Predict(context.Background(), v, []float32{x})
	if err != nil {
		return -1, err
	}
	if len(a.Class) != 1 || len(a.Probabilities) != 3 {
		return -1, fmt.Errorf("an answer of %d rows and %d probabilities", len(a.Class), len(a.Probabilities))
	}
	return a.Class[0], nil
}

func (w *world) must(v *inference.Version, x float32, want int) {
	w.t.Helper()
	if got, err := w.class(v, x); err != nil || got != want {
		w.t.Errorf("version %d says %d for %v (%v), want %d", v.Number, got, x, err, want)
	}
}

// damage makes a blob's first part another one, as a disk does, and gives a function that makes it whole.
func (w *world) damage(id domain.Digest) (repair func()) {
	w.t.Helper()
	r, err := blob.Open(context.Background(), id, w.blobs.Get)
	if err != nil {
		w.t.Fatal(err)
	}
	flip := func(b []byte) []byte { b[0] ^= 1; return b }
	w.blobs.Corrupt(r.Manifest().Parts[0], flip)
	return func() { w.blobs.Corrupt(r.Manifest().Parts[0], flip) }
}

// awaitQueue waits until so many more rows are queued.
func (w *world) awaitQueue(rows int) {
	w.t.Helper()
	want := w.queued + rows
	for inference.Queued(w.engine) < want {
		runtime.Gosched()
	}
	w.queued = want
}
