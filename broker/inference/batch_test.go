package inference_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"tensorturn/domain"
)

// slowDown lets passes wait until go on is called.
func (w *world) slowDown() (goOn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := make(chan struct{})
	w.slow = c
	return func() {
		w.mu.Lock()
		w.slow = nil
		w.mu.Unlock()
		close(c)
	}
}

// What comes while a model is busy is one pass, and each caller gets his own rows. A lone request waits for nobody.
func TestBatches(t *testing.T) {
	w := newWorld(t)
	v := w.version(0)
	w.must(v, 0, 0)
	goOn := w.slowDown()
	var all sync.WaitGroup
	all.Go(func() { w.must(v, 1, 1) })
	<-w.began
	for i := range 40 {
		all.Go(func() { w.must(v, float32(i), i%3) })
	}
	w.awaitQueue(40)
	goOn()
	all.Wait()
	if !slices.Equal(w.passes, []int{1, 1, 40}) {
		t.Errorf("passes of %v rows, want 1, 1, 40", w.passes)
	}
}

// A pass takes no more than 256 rows; one request of more is its own pass.
func TestLargeBatches(t *testing.T) {
	w := newWorld(t)
	v := w.version(0)
	w.must(v, 0, 0)
	goOn := w.slowDown()
	var all sync.WaitGroup
	all.Go(func() { w.must(v, 1, 1) })
	<-w.began
	ask := func(rows int) {
		all.Go(func() {
			a, err := w.engine.Predict(context.Background(), v, make([]float32, rows))
			if err != nil || len(a.Class) != rows {
				t.Errorf("%d rows: %d classes, %v", rows, len(a.Class), err)
			}
		})
		w.awaitQueue(rows)
	}
	for _, rows := range []int{200, 100, 300, 50, 60} {
		ask(rows)
	}
	goOn()
	all.Wait()
	if !slices.Equal(w.passes[2:], []int{200, 100, 300, 110}) {
		t.Errorf("passes of %v rows", w.passes)
	}
}

// Rows that the model refuses fail for who sent them alone.
func TestWrongRowsInABatch(t *testing.T) {
	w := newWorld(t)
	v := w.version(0)
	w.must(v, 0, 0)
	goOn := w.slowDown()
	var all sync.WaitGroup
	all.Go(func() { w.must(v, 1, 1) })
	<-w.began
	for i := range 6 {
		all.Go(func() {
			if i == 3 {
				if _, err := w.class(v, -1); domain.KindOf(err) != domain.KindInvalid {
					t.Errorf("the wrong row: %v", err)
				}
				return
			}
			w.must(v, 2, 2)
		})
	}
	w.awaitQueue(6)
	goOn()
	all.Wait()
}

// A caller that gives up in the queue leaves it; the others are answered.
func TestGivesUpInTheQueue(t *testing.T) {
	w := newWorld(t)
	v := w.version(0)
	w.must(v, 0, 0)
	goOn := w.slowDown()
	var all sync.WaitGroup
	all.Go(func() { w.must(v, 1, 1) })
	<-w.began
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error)
	go func() {
		_, err := w.engine.Predict(ctx, v, []float32{1})
		left <- err
	}()
	w.awaitQueue(1)
	all.Go(func() { w.must(v, 2, 2) })
	w.awaitQueue(1)
	cancel()
	if err := <-left; err == nil {
		t.Error("answered although it left")
	}
	goOn()
	all.Wait()
	if !slices.Equal(w.passes, []int{1, 1, 1}) {
		t.Errorf("passes of %v rows", w.passes)
	}
}

// A panic of a model is an error of who asked; the model is loaded anew for the next.
func TestPanic(t *testing.T) {
	w := newWorld(t)
	v := w.version(0)
	w.must(v, 0, 0)
	if _, err := w.class(v, -2); domain.KindOf(err) != domain.KindInternal {
		t.Errorf("a panic: %v", err)
	}
	w.must(v, 1, 1)
	if w.loads != 2 || w.open != 1 {
		t.Errorf("%d loads, %d open", w.loads, w.open)
	}
}

// No rows, or half ones, reach no model.
func TestRowsMustBeWhole(t *testing.T) {
	w := newWorld(t)
	if _, err := w.engine.Predict(t.Context(), w.version(0), nil); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("no rows: %v", err)
	}
	if len(w.passes) != 0 {
		t.Error("the model was asked")
	}
}
