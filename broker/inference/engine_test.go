package inference_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"tensorturn/broker/inference"
	"tensorturn/domain"
)

// Many first requests at once load a model once; versions that are made of the same share it.
func TestLoadedOnce(t *testing.T) {
	w := newWorld(t)
	v := w.version(1)
	same := *v
	same.Number, same.Model = 7, "other"
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			if i%2 == 0 {
				w.must(v, 1, 2)
			} else {
				w.must(&same, 1, 2)
			}
		})
	}
	all.Wait()
	if w.loads != 1 {
		t.Errorf("loaded %d times", w.loads)
	}
}

// Weights that are not what their digest says are never served: not at a deployment, not at a request. Once they are whole
// again, so is the model, after a pause in which nobody asks the store in vain.
func TestDamagedWeights(t *testing.T) {
	w := newWorld(t)
	v := w.version(1)
	repair := w.damage(v.Weights)
	for range 3 {
		if _, err := w.class(v, 1); domain.KindOf(err) != domain.KindIntegrity && domain.KindOf(err) != domain.KindNotFound {
			t.Errorf("damaged weights: %v", err)
		}
	}
	if err := w.engine.Check(t.Context(), v); err == nil {
		t.Error("a damaged version may be deployed")
	}
	if w.loads != 1 || w.open != 0 || len(w.passes) != 0 {
		t.Errorf("%d loads, %d open, %d passes", w.loads, w.open, len(w.passes))
	}
	repair()
	if _, err := w.class(v, 1); err == nil {
		t.Error("it was tried again at once")
	}
	w.later(6 * time.Second)
	w.must(v, 1, 2)
}

// A model whose tensors are not those of the log is not served either.
func TestForeignLayout(t *testing.T) {
	w := newWorld(t)
	v := w.version(1)
	v.Layout = v.Weights
	if _, err := w.class(v, 1); domain.KindOf(err) != domain.KindIntegrity {
		t.Errorf("a foreign layout: %v", err)
	}
	if w.open != 0 {
		t.Errorf("%d models are open", w.open)
	}
}

// Models beyond the limit make room, least recently used first; one in use never does.
func TestRoom(t *testing.T) {
	w := newWorld(t, func(c *inference.Config) { c.Loaded = 2 })
	a, b, c := w.version(0), w.version(1), w.version(2)
	w.must(a, 0, 0)
	w.must(b, 0, 1)
	w.must(a, 0, 0)
	w.must(c, 0, 2) // b goes
	if w.must(a, 0, 0); w.loads != 3 {
		t.Errorf("%d loads, want 3: the one used last went", w.loads)
	}
	if w.must(b, 0, 1); w.loads != 4 || w.open != 2 {
		t.Errorf("%d loads, %d open", w.loads, w.open)
	}
	w.mu.Lock()
	w.slow = make(chan struct{})
	w.mu.Unlock()
	var busy sync.WaitGroup
	busy.Go(func() { w.must(a, 0, 0) })
	busy.Go(func() { w.must(b, 0, 1) })
	<-w.began
	<-w.began
	if _, err := w.class(c, 0); domain.KindOf(err) != domain.KindUnavailable || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a third beside two in use: %v", err)
	}
	close(w.slow)
	busy.Wait()
	w.mu.Lock()
	w.slow = nil
	w.mu.Unlock()
	w.must(c, 0, 2)
}

// The bytes of models have a limit of their own: each counts with what is kept beside its weights.
func TestBytes(t *testing.T) {
	w := newWorld(t, func(c *inference.Config) { c.LoadedBytes = 45 }) // weights of 4 bytes count 20
	for n := range 4 {
		w.must(w.version(n), 0, n%3)
		if w.open > 2 {
			t.Errorf("%d models are open", w.open)
		}
	}
	small := newWorld(t, func(c *inference.Config) { c.LoadedBytes = 19 })
	if _, err := small.class(small.version(1), 0); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("a model larger than all memory: %v", err)
	}
}

// A caller that gives up while a model is loaded leaves; the load goes on for the others.
func TestGivesUpLoading(t *testing.T) {
	w := newWorld(t)
	w.hold = make(chan struct{})
	v := w.version(1)
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error)
	go func() {
		_, err := w.engine.Predict(ctx, v, []float32{1})
		left <- err
	}()
	cancel()
	if err := <-left; domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("left with %v", err)
	}
	close(w.hold)
	w.must(v, 1, 2)
	if w.loads != 1 {
		t.Errorf("%d loads", w.loads)
	}
}

// Stop ends a load under way.
func TestStopWhileLoading(t *testing.T) {
	w := newWorld(t)
	w.hold = make(chan struct{})
	done := make(chan error)
	v := w.version(1)
	go func() {
		_, err := w.class(v, 1)
		done <- err
	}()
	for loads := 0; loads == 0; {
		w.mu.Lock()
		loads = w.loads
		w.mu.Unlock()
	}
	w.engine.Stop()
	if err := <-done; err == nil {
		t.Error("answered by a stopped engine")
	}
	if _, err := w.class(w.version(2), 1); domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("after Stop: %v", err)
	}
}

// Versions that come and go under load, with room for two of eight: every answer is right, and every model closed in the
// end, none while it is in use.
func TestSwapsUnderLoad(t *testing.T) {
	w := newWorld(t, func(c *inference.Config) { c.Loaded = 3 })
	var versions []*inference.Version
	for n := range 8 {
		versions = append(versions, w.version(n))
	}
	var all sync.WaitGroup
	for g := range 3 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for range 400 {
				n, x := r.IntN(8), float32(r.IntN(9))
				w.must(versions[n], x, (int(x)+n)%3)
			}
		})
	}
	all.Wait()
	if w.loads < 20 {
		t.Errorf("only %d loads: nothing was swapped", w.loads)
	}
}
