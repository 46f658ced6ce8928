package replay

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// TestPointsFollowTheLog takes a picture behind every record and holds it against a log that ends there.
func TestPointsFollowTheLog(t *testing.T) {
	w := newWorld(t, nil)
	l := New(registry(), theRun)
	for i := range w.records {
		l.Mark(uint64(i + 1))
	}
	for i, r := range w.records {
		w.must(l.Add(uint64(i+1), r))
	}
	counted := int64(0)
	for _, at := range []int{1, 2, len(w.records) / 3, len(w.records) / 2, len(w.records)} {
		short := New(registry(), theRun)
		for i, r := range w.records[:at] {
			w.must(short.Add(uint64(i+1), r))
		}
		p, err := l.Point(uint64(at))
		w.must(err)
		if d := cmp.Diff(pointOf(theRun, uint64(at), short.State()), p); d != "" {
			t.Errorf("at %d:\n%s", at, d)
		}
		if p.Counted < counted {
			t.Errorf("at %d fewer samples are counted than before", at)
		}
		counted = p.Counted
	}
	if _, err := l.Point(uint64(len(w.records) + 1)); domain.KindOf(err) != domain.KindNotFound {
		t.Errorf("behind the end: %v", err)
	}
}

func TestDifference(t *testing.T) {
	early := Point{Seq: 3, Phase: run.PhaseTraining, Expected: 120, Open: 1, Chunks: map[string]int{"queued": 6}}
	late := Point{Seq: 9, Phase: run.PhaseTraining, Counted: 40, Expected: 120, Merged: 1, Chunks: map[string]int{"merged": 2, "queued": 4},
		Leases: []PointLease{{Slot: "a/0", Unit: run.UnitTrain, Epoch: 7, Round: 2, Claimed: 1}}}
	want := []Change{{"samples counted", "0 of 120", "40 of 120"}, {"rounds merged", "0", "1"}, {"round open", "1", "-"}, {"deltas in it", "0", "-"},
		{"chunks queued", "6", "4"}, {"chunks merged", "-", "2"}, {"slot a/0", "-", "trains for round 2: 0 chunks trained and not counted yet, 1 claimed, since record 7"}}
	if d := cmp.Diff(want, Difference(early, late)); d != "" {
		t.Error(d)
	}
	if d := Difference(late, late); len(d) != 0 {
		t.Errorf("a point differs from itself: %v", d)
	}
	if got := (Point{}).Rows(); len(got) != 1 || !strings.Contains(got[0].Value, "not submitted") {
		t.Errorf("%v", got)
	}
}
