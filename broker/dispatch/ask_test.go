package dispatch_test

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tensorturn/broker/inference"
	"tensorturn/broker/wire"
	"tensorturn/domain"
)

// in runs a test in a bubble with a model deployed on all machines.
func in(t *testing.T, names string, f func(w *world, v *inference.Version)) {
	synctest.Test(t, func(t *testing.T) {
		all := strings.Fields(names)
		w := newWorld(t, all...)
		v := model(1, len(all))
		w.deployed = []*inference.Version{v}
		w.settle(all...)
		f(w, v)
	})
}

// Whoever has the fewest rows to answer is asked first: a machine that is silent is left alone meanwhile.
func TestLeastLoadedFirst(t *testing.T) {
	in(t, "a b", func(w *world, v *inference.Version) {
		w.box("a").do = silence
		go w.d.Predict(w.t.Context(), v, []float32{1})
		synctest.Wait()
		for range 5 {
			w.predict(v, 2)
		}
		if got := w.took(); !slices.Equal(got, []string{"a", "b", "b", "b", "b", "b"}) {
			t.Errorf("asked %v", got)
		}
		time.Sleep(answerTime)
	})
}

const answerTime = 21 * time.Second

// A failure is tried once more on another machine and no more; wrong rows are wrong when two machines say so.
func TestRetriedOnce(t *testing.T) {
	in(t, "a b c", func(w *world, v *inference.Version) {
		w.box("a").do = broken
		w.predict(v, 2)
		if got := w.took(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("asked %v", got)
		}
		w.box("b").do = broken
		if _, err := w.d.Predict(w.t.Context(), v, []float32{2}); domain.KindOf(err) != domain.KindInternal {
			t.Errorf("two that fail: %v", err)
		}
		if got := w.took(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("asked %v", got)
		}
		w.box("a").do, w.box("b").do = refuses, refuses
		if _, err := w.d.Predict(w.t.Context(), v, []float32{2}); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("wrong rows: %v", err)
		}
		if got := w.took(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("asked %v", got)
		}
	})
}

func refuses(a *wire.Ask) *wire.Said {
	return &wire.Said{ID: a.ID, Error: &wire.Error{Kind: domain.KindInvalid, Why: "a value is not finite"}}
}

// A machine that calls all rows wrong harms no request while another answers; alone it is believed, and one that fails beside it
// leaves the rows in peace.
func TestRefusalsAreProven(t *testing.T) {
	in(t, "a b", func(w *world, v *inference.Version) {
		w.box("a").do = refuses
		for range 20 {
			w.predict(v, 1)
		}
		for name, c := range map[string]struct {
			do   func(*wire.Ask) *wire.Said
			kind domain.Kind
		}{"away": {away, domain.KindInvalid}, "broken": {broken, domain.KindInternal}} {
			w.box("b").do = c.do
			if _, err := w.d.Predict(w.t.Context(), v, []float32{1}); domain.KindOf(err) != c.kind {
				t.Errorf("the other is %s: %v", name, err)
			}
		}
	})
	in(t, "a", func(w *world, v *inference.Version) {
		w.box("a").do = refuses
		if _, err := w.d.Predict(w.t.Context(), v, []float32{1}); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("there is no other: %v", err)
		}
	})
}

// Members that refuse the rows leave the vote; when all do, the rows are wrong.
func TestMembersThatRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "c")
		v := ensemble(3, 1)
		w.deployed = []*inference.Version{v}
		w.settle("a", "b", "c")
		w.box("b").do = refuses
		if a := w.predict(v, 1); a.Used != 2 {
			t.Errorf("one refuses: %+v", a)
		}
		w.box("a").do, w.box("c").do = broken, refuses
		if _, err := w.d.Predict(w.t.Context(), v, []float32{1}); domain.KindOf(err) != domain.KindInternal {
			t.Errorf("two refuse, one fails: %v", err)
		}
		w.box("a").do = refuses
		if _, err := w.d.Predict(w.t.Context(), v, []float32{1}); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("all refuse: %v", err)
		}
	})
}

// When all machines are gone, each request is told so at once.
func TestAllGone(t *testing.T) {
	in(t, "a b", func(w *world, v *inference.Version) {
		w.box("a").gone, w.box("b").gone = true, true
		for i := range 3 {
			began := time.Now()
			_, err := w.d.Predict(w.t.Context(), v, []float32{1})
			if domain.KindOf(err) != domain.KindUnavailable || !strings.Contains(err.Error(), "no machine that may hold models is connected") || time.Since(began) > 0 {
				t.Errorf("request %d after %s: %v", i, time.Since(began), err)
			}
		}
		w.box("a").gone = false
		w.settle("a")
		w.predict(v, 1)
	})
}

// A machine that has too much to do is not said to be gone.
func TestAllBusy(t *testing.T) {
	in(t, "a", func(w *world, v *inference.Version) {
		w.box("a").do = away
		if _, err := w.d.Predict(w.t.Context(), v, []float32{1}); domain.KindOf(err) != domain.KindUnavailable || !strings.Contains(err.Error(), "too much to do") {
			t.Error(err)
		}
	})
}

// A machine that has not begun, or is not there, costs no retry: the next is asked until there is none.
func TestAwayCostsNothing(t *testing.T) {
	in(t, "a b c d", func(w *world, v *inference.Version) {
		w.box("a").gone, w.box("b").do, w.box("c").do = true, away, broken
		w.predict(v, 1)
		if got := w.took(); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
			t.Errorf("asked %v", got)
		}
		w.box("b").do, w.box("c").do = nil, nil
		w.predict(v, 1)
		if got := w.took(); !slices.Equal(got, []string{"b"}) { // a is not asked again until it is heard
			t.Errorf("asked %v", got)
		}
		w.box("a").gone = false
		w.settle("a", "b", "c", "d")
		w.predict(v, 1)
		if got := w.took(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("asked %v", got)
		}
	})
}

// When a machine is slower than the model mostly is, another is asked as well, and the first answer counts.
func TestHedge(t *testing.T) {
	in(t, "a b", func(w *world, v *inference.Version) {
		for _, b := range w.boxes {
			b.after = 40 * time.Millisecond
		}
		for range 20 {
			w.predict(v, 1)
		}
		w.took()
		w.box("a").do = silence
		began := time.Now()
		w.predict(v, 1)
		if took := time.Since(began); took != 100*time.Millisecond { // 1.5 × 40 ms until b is asked, and its 40 ms
			t.Errorf("took %s", took)
		}
		if got := w.took(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("asked %v", got)
		}
		time.Sleep(answerTime)
	})
}

// When everything is slow, no more than a tenth of the questions are asked twice, beyond the ten that were saved.
func TestHedgesAreFew(t *testing.T) {
	in(t, "a b", func(w *world, v *inference.Version) {
		for range 20 {
			w.predict(v, 1)
		}
		w.took()
		for _, b := range w.boxes {
			b.after = time.Second
		}
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() { w.predict(v, 1) })
		}
		all.Wait()
		if n := len(w.took()); n < 40+10 || n > 40+10+6 {
			t.Errorf("40 requests were %d questions", n)
		}
	})
}

// A member whose only machine is silent leaves the vote when the others have waited long enough, and the answer says so; when
// none answers there is no answer.
func TestMembersThatAnswerInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "c")
		v := ensemble(3, 1)
		w.deployed = []*inference.Version{v}
		w.settle("a", "b", "c")
		if a := w.predict(v, 1, 2); a.Used != 3 || a.Votes[1] != 3 {
			t.Errorf("%+v", a)
		}
		w.box("b").do = silence
		began := time.Now()
		if a := w.predict(v, 1, 2); a.Used != 2 || a.Votes[1] != 2 || time.Since(began) != 2*time.Second {
			t.Errorf("%+v in %s", a, time.Since(began))
		}
		w.box("b").do, w.box("b").gone = nil, true
		began = time.Now()
		if a := w.predict(v, 1); a.Used != 2 || time.Since(began) > 0 {
			t.Errorf("%+v in %s", a, time.Since(began))
		}
		w.box("a").do, w.box("c").do = silence, silence
		if _, err := w.d.Predict(w.t.Context(), v, []float32{1}); domain.KindOf(err) != domain.KindUnavailable {
			t.Errorf("nobody answers: %v", err)
		}
		time.Sleep(answerTime)
	})
}

// The hub believes no machine: an answer to another's question is not heard, one of the wrong size or with numbers that are not finite
// counts as a failure, and noise harms nobody.
func TestAnswersAreForeign(t *testing.T) {
	in(t, "a b", func(w *world, v *inference.Version) {
		w.box("a").do = func(a *wire.Ask) *wire.Said {
			for _, noise := range [][]byte{nil, []byte("attack"), {0x81, 0xa2, 'i', 'd', 0x01}} {
				w.d.Answer("AA", noise)
			}
			b, err := wire.EncodeSaid(&wire.Said{ID: a.ID, Values: wire.PackValues([]float32{0.9, 0, 0})})
			if err != nil {
				t.Error(err)
			}
			w.d.Answer("AB", b) // b was not asked
			return &wire.Said{ID: a.ID, Values: wire.PackValues(w.right(a))}
		}
		w.predict(v, 1)
		for _, p := range [][]float32{{0.5}, {0.1, 0.2, 0.3, 0.4}, {float32(math.NaN()), 0, 0}, nil} {
			w.took()
			w.box("a").do = func(a *wire.Ask) *wire.Said { return &wire.Said{ID: a.ID, Values: wire.PackValues(p)} }
			w.predict(v, 1)
			if got := w.took(); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("%v: asked %v", p, got)
			}
		}
	})
}

// More rows than one message carries go in several; one row beyond it is refused, at the deployment already.
func TestRowsAreSplit(t *testing.T) {
	in(t, "a", func(w *world, v *inference.Version) {
		largest := 0
		w.box("a").do = func(a *wire.Ask) *wire.Said {
			largest = max(largest, len(a.Values))
			return &wire.Said{ID: a.ID, Values: wire.PackValues(w.right(a))}
		}
		x := make([]float32, 100_000)
		for i := range x {
			x[i] = float32(i % 7)
		}
		w.predict(v, x...)
		// An answer of three classes is wider than a question of one feature: it sets the measure.
		if n := len(w.took()); n != 3 || largest != wire.MaxAskBytes/12*4 {
			t.Errorf("%d questions, the largest of %d bytes", n, largest)
		}
		w.facts = inference.Facts{Columns: make([]string, wire.MaxAskBytes/4+1), Classes: facts.Classes}
		other := model(2, 1)
		other.Data.Blob = digest(7)
		if err := w.d.Check(w.t.Context(), other); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("a row beyond a message: %v", err)
		}
	})
}
