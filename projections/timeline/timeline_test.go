package timeline_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain/event"
	"tensorturn/domain/freeze"
	"tensorturn/domain/run"
	"tensorturn/projections/timeline"
)

// TestLinesDoNotDependOnWhenTheyAreRead: lines are rendered when somebody asks, and cut when they are many; neither may
// show. The bound holds at every event.
func TestLinesDoNotDependOnWhenTheyAreRead(t *testing.T) {
	quiet, asked := timeline.New(), timeline.New()
	for i := range 3*timeline.MaxLines + 7 {
		e := event.Envelope{Seq: uint64(i + 1), Kind: event.KindRun, Agg: "r-1", Actor: "hub", Data: &run.TaskFailed{Slot: "m-1#0", Error: fmt.Sprint("broken ", i)}}
		if i%5 == 0 {
			e.Kind, e.Agg = event.KindMachine, "m-1"
		}
		quiet.Apply(e)
		asked.Apply(e)
		if i%97 == 0 {
			if n := len(asked.Since("r-1", 0, 1<<20)); n >= 2*timeline.MaxLines {
				t.Fatalf("%d lines are kept", n)
			}
		}
	}
	if cut := quiet.Since("r-1", 0, 1<<20)[0].Seq; cut < timeline.MaxLines/2 {
		t.Fatalf("the test is too short for a cut: the first line is of event %d", cut)
	}
	if d := cmp.Diff(asked.Since("r-1", 0, 1<<20), quiet.Since("r-1", 0, 1<<20)); d != "" {
		t.Fatal(d)
	}
	a, errA := freeze.Freeze(asked.Part())
	b, errB := freeze.Freeze(quiet.Part())
	if errA != nil || errB != nil || string(a) != string(b) {
		t.Fatalf("the snapshots differ: %v, %v", errA, errB)
	}
}
