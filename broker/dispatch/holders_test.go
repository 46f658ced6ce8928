package dispatch_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tensorturn/broker/inference"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// A list is sent until the machine names its mark, and again when it changes; a machine without room hears of none.
func TestListsAreSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.box("b").room = 0
		w.deployed = []*inference.Version{model(1, 2)}
		w.settle("a", "b")
		if got := w.holds("a"); !slices.Equal(got, []int{1}) || w.box("b").mark != "" {
			t.Fatalf("a holds %v, b has mark %q", got, w.box("b").mark)
		}
		if h := w.d.Exchange("a", &wire.Holding{Room: 8, Mark: w.box("a").mark, Ready: []int{0}}, false); h != nil {
			t.Errorf("sent again: %+v", h)
		}
		w.deployed = append(w.deployed, model(2, 2))
		time.Sleep(time.Second)
		w.sync("a")
		if got := w.holds("a"); !slices.Equal(got, []int{1, 2}) {
			t.Errorf("a holds %v", got)
		}
		w.deployed = nil
		w.settle("a")
		if got := w.holds("a"); len(got) > 0 {
			t.Errorf("retired, and a holds %v", got)
		}
	})
}

// A machine that is silent, revoked or draining is replaced; one that drains keeps its copy until another is ready.
func TestReplaced(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"silent":   func(w *world) { w.settleFor(silent, "b", "c") },
		"revoked":  func(w *world) { w.machines = slices.Delete(w.machines, 0, 1) },
		"draining": func(w *world) { w.machines[0].Leaving = true },
		"stopping": func(w *world) {
			w.d.Exchange("a", &wire.Holding{Room: 8, Mark: w.box("a").mark, Ready: []int{0}}, true)
		},
		"unlinked": func(w *world) {
			w.box("a").gone = true
			w.predict(w.deployed[0], 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b", "c")
				w.deployed = []*inference.Version{model(1, 2)}
				w.settle("a", "b", "c")
				if len(w.holds("c")) > 0 {
					t.Fatal("three copies")
				}
				lose(w)
				w.settle("b", "c")
				if got := w.holds("c"); !slices.Equal(got, []int{1}) {
					t.Errorf("c holds %v", got)
				}
				w.took()
				for range 3 {
					w.predict(w.deployed[0], 1)
				}
				if slices.Contains(w.took(), "a") {
					t.Error("a is asked")
				}
			})
		})
	}
}

func (w *world) settleFor(d time.Duration, names ...string) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		w.settle(names...)
	}
}

// A machine that cannot load a model is passed over for a minute; the operator who deploys is told its words, others are not.
func TestFailedLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		v := model(1, 1)
		w.box("a").failed[v.Weights] = true
		checked := make(chan error)
		w.settle("a", "b")
		go func() { checked <- w.d.Check(w.t.Context(), v) }()
		synctest.Wait()
		w.settle("a", "b")
		if err := <-checked; err != nil {
			t.Fatal(err)
		}
		if got := w.holds("b"); !slices.Equal(got, []int{1}) {
			t.Errorf("b holds %v", got)
		}
		w.box("b").failed[digest(2)], w.box("a").failed[digest(2)] = true, true
		other := model(2, 1)
		go func() { checked <- w.d.Check(w.t.Context(), other) }()
		synctest.Wait()
		w.settle("a", "b")
		if err := <-checked; err == nil || !strings.Contains(err.Error(), "no torch here") {
			t.Errorf("deployed: %v", err)
		}
		if _, err := w.d.Predict(w.t.Context(), other, []float32{1}); domain.KindOf(err) != domain.KindUnavailable || strings.Contains(err.Error(), "torch") {
			t.Errorf("asked: %v", err)
		}
		w.box("a").failed[digest(2)] = false
		w.settleFor(time.Minute, "a", "b")
		w.predict(other, 1)
	})
}

// A version that was asked for is held on for a while after a newer one has come: requests under way finish on it.
func TestOldVersionsStayAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		old, next := model(1, 1), model(2, 1)
		w.deployed = []*inference.Version{old}
		w.settle("a")
		w.predict(old, 1)
		w.deployed = []*inference.Version{next}
		w.settle("a")
		w.predict(old, 1)
		w.predict(next, 1)
		w.settleFor(11*time.Minute, "a")
		if got := w.holds("a"); !slices.Equal(got, []int{2}) {
			t.Errorf("a holds %v", got)
		}
	})
}

// What holds a version is told as it is now: machines that have gone silent do not count.
func TestHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		v := ensemble(2, 1)
		w.deployed = []*inference.Version{v}
		w.box("b").failed[v.Members[1].Weights], w.box("a").failed[v.Members[1].Weights] = true, true
		w.settle("a", "b")
		if h := w.d.Held(v); len(h.Machines) != 1 || h.Ready != 1 || h.Models != 2 || h.Able != 2 {
			t.Errorf("one of two members: %+v", h)
		}
		if h := w.d.Held(model(7, 1)); len(h.Machines) != 0 || h.Ready != 0 || h.Models != 1 || h.Able != 2 {
			t.Errorf("of a version that nobody knows: %+v", h)
		}
		time.Sleep(silent)
		if h := w.d.Held(v); len(h.Machines) != 0 || h.Ready != 0 || h.Able != 0 {
			t.Errorf("when all are away: %+v", h)
		}
	})
}

// A request waits a little for machines that load, a deployment longer, and without machines it is told so at once.
func TestNobodyHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		v := model(1, 2)
		time.Sleep(silent)
		began := time.Now()
		if err := w.d.Check(w.t.Context(), v); domain.KindOf(err) != domain.KindUnavailable || !strings.Contains(err.Error(), "no machine") || time.Since(began) > 0 {
			t.Errorf("deployed on nothing: %v after %s", err, time.Since(began))
		}
		w.d.Exchange("a", &wire.Holding{Room: 8}, false) // it comes back, and has loaded nothing yet
		done := make(chan error, 1)
		go func() {
			_, err := w.d.Predict(w.t.Context(), v, []float32{1})
			done <- err
		}()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("a request does not wait for a machine that loads")
		}
		w.settle("a")
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A program's model answers a row of zeros before it is deployed: a script without predict= is refused there and not by users.
func TestProgramsAreTried(t *testing.T) {
	in(t, "a", func(w *world, _ *inference.Version) {
		v := model(3, 1)
		v.Spec.Trainer = run.Process
		w.deployed = append(w.deployed, v)
		w.settle("a")
		w.box("a").do = func(a *wire.Ask) *wire.Said {
			return &wire.Said{ID: a.ID, Error: &wire.Error{Kind: domain.KindInvalid, Why: "the script gives no predictions"}}
		}
		if err := w.d.Check(w.t.Context(), v); err == nil || !strings.Contains(err.Error(), "gives no predictions") {
			t.Errorf("deployed: %v", err)
		}
		w.box("a").do = nil
		if err := w.d.Check(w.t.Context(), v); err != nil {
			t.Error(err)
		}
	})
}

// A hub that starts anew asks the machines what they hold, uses it at once, and gives nobody anything before all had the time to
// come back.
func TestHubStartsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.deployed = []*inference.Version{model(1, 1), model(2, 1)}
		w.settle("a", "b")
		if a, b := w.holds("a"), w.holds("b"); len(a) != 1 || len(b) != 1 {
			t.Fatalf("a holds %v, b %v", a, b)
		}
		again := newWorldLike(w)
		h := &wire.Holding{Room: 8, Mark: w.box("a").mark, Ready: []int{0}}
		if holds := again.Exchange("a", h, false); holds == nil || holds.Mark != wire.MarkAsks {
			t.Fatalf("it does not ask: %+v", holds)
		}
		h.Tells, h.List = true, []wire.HeldKey{{Run: "r-1", Weights: w.deployed[0].Weights}}
		if holds := again.Exchange("a", h, false); holds != nil {
			t.Errorf("a is told at once: %+v", holds)
		}
		w.d = again
		w.predict(w.deployed[0], 1)
		time.Sleep(silent)
		if holds := again.Exchange("a", h, false); holds == nil || len(holds.Runs) != 1 || len(holds.Runs[0].Models) != 2 {
			t.Errorf("b did not come back, and a is told %+v", holds)
		}
	})
}
