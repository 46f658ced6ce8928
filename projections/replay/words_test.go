package replay

import (
	"strings"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// The story tells of machines that had work of the run, while it goes on, and only to those who may know of them.
func TestStoryTellsOfMachines(t *testing.T) {
	r := event.NewRegistry()
	run.Register(r)
	machine.Register(r)
	w := newWorld(t, nil)
	for _, told := range []bool{true, false} {
		l := New(r, theRun)
		l.checks.chain = false // the records of machines are put between those of a run that is there
		if told {
			l.TellMachines()
		}
		lost := func(id string) {
			b, err := event.Encode(event.Envelope{ID: "c-m.0", Cause: "c-m", Kind: event.KindMachine, Agg: id, Time: w.time(), Actor: "hub", Data: &machine.BecameLost{Silent: 7}, Version: 1})
			w.must(err)
			w.must(l.Add(uint64(len(w.records)+1), b))
		}
		lost("a") // before it had work
		for i, b := range w.records {
			w.must(l.Add(uint64(i+1), b))
			if i == len(w.records)/2 {
				lost("a")
				lost("c")
			}
		}
		lost("b") // after the end
		var got []string
		for _, s := range l.Story() {
			if s.Kind == event.KindMachine {
				got = append(got, s.ID+" "+s.Text)
			}
		}
		if want := "a lost: silent for 7.0 s"; told && strings.Join(got, ", ") != want || !told && len(got) > 0 {
			t.Errorf("told %v: %q", told, got)
		}
	}
}

// What each machine did sums up to what the ledger counted.
func TestWork(t *testing.T) {
	w := newWorld(t, nil)
	l, err := w.replay(allChecks)
	w.must(err)
	sum := int64(0)
	for _, m := range l.Work() {
		sum += m.Samples
	}
	if got := l.Work(); sum != w.state.Ledger().Counted || len(got) != 2 || got[0].Machine != "a" {
		t.Errorf("%v sum up to %d, the ledger has %d", got, sum, w.state.Ledger().Counted)
	}
}

// Every phase and every status of a chunk has words for somebody who sees it for the first time.
func TestPointsInWords(t *testing.T) {
	for _, p := range []run.Phase{NotSubmitted, run.PhaseSubmitted, run.PhaseTraining, run.PhaseEvaluating, run.PhaseVoting, run.PhaseCompleted, run.PhaseCancelled, run.PhaseFailed} {
		if rows := (Point{Phase: p}).Rows(); rows[0].Value != string(p) || rows[0].Note == "" {
			t.Errorf("%s: %+v", p, rows)
		}
	}
	for c := run.StatusUnplanned; c <= run.StatusMerged; c++ {
		if chunkNotes[c] == "" {
			t.Errorf("no words for chunks %s", c)
		}
	}
	if p := pointOf(theRun, 1, nil); p.Phase != NotSubmitted {
		t.Errorf("before the submission: %+v", p)
	}
	const digest = domain.Digest("abababababababababababababababababababababababababababababababab")
	for want, m := range map[string]PointMember{
		"waits for a slot": {Status: run.MemberWaiting, Of: 9},
		"waits for a slot, to go on from a checkpoint at 3 of 9 chunks":     {Status: run.MemberWaiting, Chunks: 3, Of: 9},
		"a/0 trains it; no checkpoint of its 9 chunks yet":                  {Status: run.MemberTraining, Slot: "a/0", Of: 9},
		"a/0 trains it; the newest checkpoint holds 3 of 9 chunks":          {Status: run.MemberTraining, Slot: "a/0", Chunks: 3, Saved: 1, Of: 9},
		"trained, weights abababababab; a/0 makes its answers for the vote": {Status: run.MemberTraining, Slot: "a/0", Chunks: 9, Of: 9, Weights: digest},
		"in, weights abababababab":                                          {Status: run.MemberIn, Chunks: 9, Of: 9, Weights: digest},
		"dropped: its machine was lost and on_loss is drop":                 {Status: run.MemberGone, Reason: "its machine was lost and on_loss is drop"},
	} {
		if got := m.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	rows := Point{Phase: run.PhaseTraining, Expected: 9, Members: []PointMember{{Member: 1, Status: run.MemberWaiting}, {Member: 2, Single: true, Status: run.MemberWaiting}}}.Rows()
	if len(rows) != 4 || rows[2].Name != "member 1" || rows[3].Name != "single model" {
		t.Errorf("an ensemble: %+v", rows)
	}
}
