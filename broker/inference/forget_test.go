package inference_test

import (
	"sync"
	"testing"

	"tensorturn/broker/inference"
	"tensorturn/domain"
)

// Load makes a model ready before anybody asks; Forget frees what is not kept, and a model in use when its last pass is over.
func TestForget(t *testing.T) {
	w := newWorld(t)
	a, b := w.version(0), w.version(1)
	for _, v := range []*inference.Version{a, b} {
		if err := w.engine.Load(t.Context(), v, inference.Member{Weights: v.Weights, Layout: v.Layout}); err != nil {
			t.Fatal(err)
		}
	}
	if w.loads != 2 || w.open != 2 {
		t.Fatalf("%d loads, %d open", w.loads, w.open)
	}
	only := func(v *inference.Version) func(domain.RunID, int, domain.Digest) bool {
		return func(_ domain.RunID, _ int, weights domain.Digest) bool { return v != nil && weights == v.Weights }
	}
	w.engine.Forget(only(b))
	if w.open != 1 {
		t.Errorf("%d open", w.open)
	}
	if w.engine.Holds(a.Run, 0, a.Weights) || !w.engine.Holds(b.Run, 0, b.Weights) {
		t.Error("it does not know what it holds")
	}
	w.must(b, 1, 2)
	if w.loads != 2 {
		t.Error("the one that was kept was loaded again")
	}
	goOn := w.slowDown()
	var all sync.WaitGroup
	all.Go(func() { w.must(b, 1, 2) })
	<-w.began
	w.engine.Forget(only(nil))
	w.mu.Lock()
	if w.open != 1 {
		t.Errorf("freed in the middle of a pass")
	}
	w.mu.Unlock()
	goOn()
	all.Wait()
	if w.open != 0 {
		t.Errorf("%d open after its last pass", w.open)
	}
	w.must(b, 1, 2)
	if w.loads != 3 {
		t.Errorf("%d loads", w.loads)
	}
}

// Member gives one model's probabilities, for votes that are counted elsewhere.
func TestOneMember(t *testing.T) {
	w := newWorld(t)
	v := w.ensemble(0, 1)
	p, err := w.engine.Member(t.Context(), v, v.Members[1], []float32{0, 1})
	if err != nil || len(p) != 6 || p[1] != 0.8 || p[5] != 0.8 {
		t.Errorf("%v %v", p, err)
	}
	if _, err := w.engine.Member(t.Context(), v, v.Members[0], nil); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("no rows: %v", err)
	}
}
