package projections_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
	"tensorturn/projections"
	"tensorturn/projections/fleet"
	"tensorturn/projections/runs"
	"tensorturn/projections/timeline"
	"tensorturn/projections/usage"
)

// views is one set of all views with its engine.
type views struct {
	engine   *projections.Engine
	runs     *runs.View
	fleet    *fleet.View
	timeline *timeline.View
	usage    *usage.View
}

func newViews() views {
	v := views{runs: runs.New(), fleet: fleet.New(), timeline: timeline.New(), usage: usage.New()}
	v.engine = projections.NewEngine(v.runs, v.fleet, v.timeline, v.usage)
	return v
}

// seen is everything a reader can get out of the views.
func (v views) seen() any {
	type all struct {
		Position uint64
		Runs     []runs.Run
		Machines []fleet.Machine
		Tokens   []fleet.Token
		Lines    []timeline.Line
		Usage    usage.Report
	}
	var a all
	v.engine.Read(func(p uint64) {
		a = all{p, v.runs.List(), v.fleet.List(), v.fleet.Tokens(), v.timeline.Since("r-1", 0, 100), v.usage.Since(time.Time{})}
	})
	return a
}

// story is a short log: a machine joins, a run trains one round on it and its lease expires once.
func story() []event.Envelope {
	slot := domain.Slot("m-1", 0)
	spec := run.Spec{Name: "digits", Epochs: 1, Chunk: 10, Batch: 10, Round: run.Round{Chunks: 2}}
	facts := []event.Event{
		{Kind: event.KindMachine, ID: "m-1", Data: &machine.BecameEnrolled{Name: "box", NKey: "U1", Account: "A1", Slots: 1}},
		{Kind: event.KindMachine, ID: "m-1", Data: &machine.BecameOnline{Incarnation: "i1", Slots: 1}},
		{Kind: event.KindRun, ID: "r-1", Data: &run.Submitted{Spec: spec, Data: run.Dataset{Samples: 20}}},
		{Kind: event.KindRun, ID: "r-1", Data: &run.Initialised{Slot: slot, Base: "b0", Params: 7}},
		{Kind: event.KindRun, ID: "r-1", Data: &run.RoundOpened{Round: 1, Chunks: []domain.ChunkID{0, 1}}},
		{Kind: event.KindRun, ID: "r-1", Data: &run.LeaseGranted{Slot: slot, Unit: run.UnitTrain, Round: 1}},
		{Kind: event.KindRun, ID: "r-1", Data: &run.ChunkTrained{Slot: slot, Chunk: 0, Seconds: 2, Loss: 1}},
		{Kind: event.KindRun, ID: "r-1", Data: &run.LeaseExpired{Slot: slot, Epoch: 6, Requeued: []domain.ChunkID{0, 1}}},
		{Kind: event.KindRun, ID: "r-1", Data: &run.LeaseGranted{Slot: slot, Unit: run.UnitTrain, Round: 1}},
		{Kind: event.KindRun, ID: "r-1", Data: &run.ChunkTrained{Slot: slot, Chunk: 0, Seconds: 2, Loss: 1}},
		{Kind: event.KindRun, ID: "r-1", Data: &run.ChunkTrained{Slot: slot, Chunk: 1, Seconds: 2, Loss: 1}},
		{Kind: event.KindRun, ID: "r-1", Data: &run.ContributionAccepted{Slot: slot, Number: 1, Chunks: []domain.ChunkID{0, 1}, Samples: 20}},
		{Kind: event.KindRun, ID: "r-1", Data: &run.RoundMerged{Round: 1, NextBase: "b1"}},
		{Kind: event.KindRun, ID: "r-1", Data: &run.Evaluated{Slot: slot, Accuracy: 0.9}},
		{Kind: event.KindRun, ID: "r-1", Data: &run.Completed{Model: "b1", Samples: 20, Evaluated: true}},
	}
	var out []event.Envelope
	for i, f := range facts {
		at := time.Unix(1_700_000_000+int64(i), 0).UTC()
		out = append(out, event.Envelope{Seq: uint64(i + 1), Kind: f.Kind, Agg: f.ID, Time: at, Actor: "hub", Data: f.Data})
	}
	return out
}

// TestAnyDeliveryGivesTheSameViews replays the story in random pieces with repeats.
func TestAnyDeliveryGivesTheSameViews(t *testing.T) {
	log := story()
	whole := newViews()
	if err := whole.engine.Apply(log...); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		v := newViews()
		for at := 0; at < len(log); {
			from := max(0, at-r.IntN(4)) // what was delivered before comes again
			to := min(len(log), at+1+r.IntN(4))
			if err := v.engine.Apply(log[from:to]...); err != nil {
				t.Fatal(err)
			}
			at = to
		}
		if d := cmp.Diff(whole.seen(), v.seen()); d != "" {
			t.Fatalf("views differ:\n%s", d)
		}
	}
}

func TestGapIsAnError(t *testing.T) {
	v := newViews()
	if err := v.engine.Apply(story()[2:]...); err == nil {
		t.Fatal("events 1 and 2 are missing, and nobody said so")
	}
	if p := v.engine.Position(); p != 0 {
		t.Fatalf("position %d after a refused event", p)
	}
}

func TestMoved(t *testing.T) {
	v := newViews()
	waiting := v.engine.Moved(0)
	select {
	case <-waiting:
		t.Fatal("nothing has happened yet")
	default:
	}
	if err := v.engine.Apply(story()[0]); err != nil {
		t.Fatal(err)
	}
	<-waiting
	<-v.engine.Moved(0) // beyond 0 already
}

func TestRunView(t *testing.T) {
	v := newViews()
	if err := v.engine.Apply(story()...); err != nil {
		t.Fatal(err)
	}
	r, ok := v.runs.Get("r-1")
	if !ok {
		t.Fatal("no run")
	}
	got := map[string]any{"phase": r.Phase, "counted": r.Ledger.Counted, "expected": r.Ledger.Expected, "model": r.Model, "requeued": r.Totals.Requeued,
		"expired": r.Totals.Expired, "merged": r.Rounds.Merged, "trained": r.Slots[0].Chunks, "holding": r.Slots[0].Holding, "samples": r.Slots[0].Samples, "evaluated": r.Evaluated}
	want := map[string]any{"phase": run.PhaseCompleted, "counted": int64(20), "expected": int64(20), "model": domain.Digest("b1"), "requeued": 2,
		"expired": 1, "merged": 1, "trained": 3, "holding": 0, "samples": int64(20), "evaluated": true}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	r.Slots[0].Chunks = 99 // a copy: the view must not change with it
	if again, _ := v.runs.Get("r-1"); again.Slots[0].Chunks != 3 {
		t.Fatal("the view gave its own row away")
	}
}

func TestFleetView(t *testing.T) {
	v := newViews()
	log := story()
	if err := v.engine.Apply(log[:6]...); err != nil {
		t.Fatal(err)
	}
	m, ok := v.fleet.Find("box")
	if !ok || m.Slots[0].Run != "r-1" || m.Slots[0].Epoch != 6 {
		t.Fatalf("machine by name: %v %+v", ok, m)
	}
	if err := v.engine.Apply(log[6:8]...); err != nil {
		t.Fatal(err)
	}
	if m, _ = v.fleet.Find("m-1"); m.Slots[0].Run != "" {
		t.Fatalf("an expired lease still shows: %+v", m.Slots[0])
	}
	if id, _ := v.fleet.ByNKey("U1"); id != "m-1" {
		t.Fatalf("by nkey: %q", id)
	}
	if _, ok := v.fleet.Find("nobody"); ok {
		t.Fatal("found a machine that is not there")
	}
}

// TestTimelineIsBounded floods one run.
func TestTimelineIsBounded(t *testing.T) {
	v := timeline.New()
	for i := range 5 * timeline.MaxLines {
		v.Apply(event.Envelope{Seq: uint64(i + 1), Kind: event.KindRun, Agg: "r-1", Data: &run.Resumed{}})
	}
	all := v.Since("r-1", 0, 1<<20)
	if n := len(all); n < timeline.MaxLines || n > 2*timeline.MaxLines {
		t.Fatalf("%d lines are kept, the bound is %d", n, timeline.MaxLines)
	}
	if last := all[len(all)-1].Seq; last != 5*timeline.MaxLines {
		t.Fatalf("the newest line is %d", last)
	}
	if got := v.Since("r-1", 5*timeline.MaxLines-3, 2); len(got) != 2 || got[0].Seq != 5*timeline.MaxLines-2 {
		t.Fatalf("since: %+v", got)
	}
}
