package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker/dispatch"
	"tensorturn/broker/inference"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/domain/vote"
)

const silent = 15 * time.Second

// facts of every model here: one column, three classes, unless a test says otherwise. A row x is of class x modulo 3.
var facts = inference.Facts{Columns: []string{"x"}, Classes: []string{"a", "b", "c"}}

// world is a dispatcher with machines that are played here.
type world struct {
	t        *testing.T
	d        *dispatch.Dispatcher
	machines []dispatch.Machine
	deployed []*inference.Version
	facts    inference.Facts
	began    time.Time

	mu    sync.Mutex
	boxes map[string]*box // by account
	asked []string        // machines, in the order they were asked
	woken []domain.MachineID
	work  sync.WaitGroup
}

// box is a machine. What it says to a question is do's; nil: the right answer.
type box struct {
	id      domain.MachineID
	account string
	room    int
	mark    string
	list    []wire.HeldModel
	failed  map[domain.Digest]bool
	do      func(a *wire.Ask) *wire.Said // nil answer: silence
	after   time.Duration
	gone    bool
}

func newWorld(t *testing.T, names ...string) *world {
	w := &world{t: t, boxes: map[string]*box{}, facts: facts, began: time.Now()}
	for _, n := range names {
		acc := "A" + strings.ToUpper(n)
		w.machines = append(w.machines, dispatch.Machine{ID: domain.MachineID(n), Account: acc})
		w.boxes[acc] = &box{id: domain.MachineID(n), account: acc, room: 8, failed: map[domain.Digest]bool{}}
	}
	w.d = newWorldLike(w)
	t.Cleanup(w.work.Wait)
	time.Sleep(silent - time.Second) // of the bubble: the hub gathers its machines
	w.sync(names...)
	time.Sleep(time.Second)
	return w
}

// newWorldLike is a dispatcher of a hub that has just started.
func newWorldLike(w *world) *dispatch.Dispatcher {
	return dispatch.New(dispatch.Config{Sender: w, Machines: func() []dispatch.Machine { return w.machines }, Deployed: func() []*inference.Version { return w.deployed },
		Facts:  func(context.Context, *inference.Version) (inference.Facts, error) { return w.facts, nil },
		Wake:   func(m domain.MachineID) { w.mu.Lock(); w.woken = append(w.woken, m); w.mu.Unlock() },
		Silent: silent, Now: time.Now, Logger: zerolog.Nop()})
}

// box finds a machine, when nobody looks at it.
func (w *world) box(name string) *box {
	synctest.Wait()
	return w.boxes["A"+strings.ToUpper(name)]
}

// digest is a SHA-256 that tells who it is of.
func digest(n int) domain.Digest { return domain.Digest(fmt.Sprintf("%064x", n)) }

// model is a version of one model.
func model(n, copies int) *inference.Version {
	return &inference.Version{Model: "m", Number: n, Run: "r-1", Data: run.Dataset{Blob: digest(999)}, Weights: digest(n), Layout: digest(998), Copies: copies}
}

// ensemble is a version of so many members.
func ensemble(members, copies int) *inference.Version {
	v := &inference.Version{Model: "e", Number: 1, Run: "r-2", Spec: run.Spec{Ensemble: &run.Ensemble{Members: members}}, Data: run.Dataset{Blob: digest(999)}, Weights: digest(100), Copies: copies,
		Vote: vote.Combiner{Rule: vote.Mean, Temperature: 1}}
	for i := range members {
		v.Members = append(v.Members, inference.Member{Number: i + 1, Weights: digest(101 + i), Layout: digest(998)})
		v.Vote.Weights = append(v.Vote.Weights, 1/float64(members))
	}
	return v
}

// sync lets machines report, take their lists, and report again what they have loaded.
func (w *world) sync(names ...string) {
	for _, n := range names {
		b := w.box(n)
		for range 2 {
			h := &wire.Holding{Room: b.room, Mark: b.mark}
			for i, m := range b.list {
				if b.failed[m.Weights] {
					h.Failed = append(h.Failed, wire.FailedHold{Position: i, Error: wire.Error{Kind: domain.KindInvalid, Why: "no torch here"}})
				} else {
					h.Ready = append(h.Ready, i)
				}
			}
			if holds := w.d.Exchange(b.id, h, false); holds != nil {
				b.mark, b.list = holds.Mark, nil
				for _, r := range holds.Runs {
					b.list = append(b.list, r.Models...)
				}
			}
		}
	}
}

// settle syncs all machines until nothing changes: a list of one may follow from another's report.
func (w *world) settle(names ...string) {
	for range 3 {
		time.Sleep(time.Second) // of the bubble: the dispatcher looks at the pool anew once a second
		w.sync(names...)
	}
}

func (w *world) holds(name string) (ns []int) {
	for _, m := range w.box(name).list {
		var n int
		fmt.Sscanf(string(m.Weights), "%x", &n)
		ns = append(ns, n)
	}
	slices.Sort(ns)
	return ns
}

// Send implements dispatch.Sender.
func (w *world) Send(account string, id uint64, b []byte) error {
	a, err := wire.DecodeAsk(b)
	if err != nil {
		return err
	}
	w.mu.Lock()
	box := w.boxes[account]
	w.asked = append(w.asked, string(box.id))
	w.mu.Unlock()
	w.work.Go(func() {
		if box.gone {
			w.d.Unreached(id)
			return
		}
		time.Sleep(box.after)
		said := &wire.Said{ID: a.ID, Values: wire.PackValues(w.right(a))}
		if box.do != nil {
			said = box.do(a)
		}
		if said == nil {
			return
		}
		b, err := wire.EncodeSaid(said)
		if err != nil {
			w.t.Error(err)
		}
		w.d.Answer(account, b)
	})
	return nil
}

// right is what a model says: 0.8 for the row's class.
func (w *world) right(a *wire.Ask) (out []float32) {
	x := wire.UnpackValues(a.Values)
	width := len(x) / a.Rows
	for r := range a.Rows {
		for c := range w.facts.Classes {
			p := float32(0.1)
			if c == int(x[r*width])%len(w.facts.Classes) {
				p = 0.8
			}
			out = append(out, p)
		}
	}
	return out
}

// took forgets who was asked and gives it.
func (w *world) took() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.asked
	w.asked = nil
	return out
}

func (w *world) predict(v *inference.Version, x ...float32) inference.Answer {
	w.t.Helper()
	a, err := w.d.Predict(w.t.Context(), v, x)
	if err != nil {
		w.t.Fatal(err)
	}
	for i, f := range x {
		if len(w.facts.Columns) == 1 && a.Class[i] != int(f)%3 {
			w.t.Errorf("row %d is %v and named %d", i, f, a.Class[i])
		}
	}
	return a
}

func broken(a *wire.Ask) *wire.Said {
	return &wire.Said{ID: a.ID, Error: &wire.Error{Kind: domain.KindInternal, Why: "the program crashed"}}
}

func away(a *wire.Ask) *wire.Said  { return &wire.Said{ID: a.ID, Away: true} }
func silence(*wire.Ask) *wire.Said { return nil }
