package run_test

import (
	"strings"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// A run that has ended keeps numbers and no lists, however it ended, and they are those of the lists.
func TestAnEndedRunKeepsNoTable(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"cancelled": func(w *world) { w.must(run.Cancel{}) },
		"failed": func(w *world) {
			for range run.MaxTaskFailures {
				w.must(run.FailTask{Slot: "b/0", Epoch: w.epoch("b/0"), Error: "broken"})
				if !w.state.Done() {
					w.must(run.GrantLease{Slot: "b/0", Unit: run.UnitTrain, Round: 1})
				}
			}
		},
	} {
		w := newWorld(t, run.Spec{Batch: 10, Chunk: 10, Epochs: 1, Round: run.Round{Chunks: 4}}, dataset(60))
		w.begin("a/0", "b/0")
		w.train("a/0", 0)
		w.must(w.accept("a/0"))
		w.train("a/0", 1)
		end(w)
		s := w.state
		if !s.Done() || s.Chunks != nil || s.Carried != nil || s.Open != nil {
			t.Errorf("%s: %s with %d chunks, %v carried, open %v", name, s.Phase, len(s.Chunks), s.Carried, s.Open)
		}
		want := [run.StatusMerged + 1]int{run.StatusUnplanned: 3, run.StatusQueued: 2, run.StatusContributed: 1}
		if s.Counts() != want {
			t.Errorf("%s: %v", name, s.Counts())
		}
		if round, deltas := s.OpenRound(); round != 1 || deltas != 1 || s.Tally.Samples != 10 {
			t.Errorf("%s: round %d, %d deltas, %d samples", name, round, deltas, s.Tally.Samples)
		}
		if diff := difference(s, w.fold()); diff != "" {
			t.Errorf("%s: the fold of the log is not the live state:\n%s", name, diff)
		}
		if err := run.Audit(s); err != nil {
			t.Error(err)
		}
	}
}

// What was wrong when a run ended is still seen when the lists are gone.
func TestTheLastAuditStays(t *testing.T) {
	w := newWorld(t, run.Spec{Batch: 10, Chunk: 10, Epochs: 1, Round: run.Round{Chunks: 4}}, dataset(60))
	w.begin("a/0", "b/0")
	w.train("a/0", 0)
	w.must(w.accept("a/0"))
	w.apply(&run.ChunksClaimed{Slot: "b/0", Epoch: w.epoch("b/0"), Chunks: []domain.ChunkID{0}}) // counted already
	w.apply(&run.Cancelled{})
	if err := run.Audit(w.state); err == nil || !strings.Contains(err.Error(), "two places") {
		t.Errorf("the audit says %v", err)
	}
	w = newWorld(t, run.Spec{Batch: 10, Chunk: 10, Epochs: 1}, dataset(60))
	w.begin("a/0")
	w.must(run.Cancel{})
	w.state.Counted = 5
	if err := run.Audit(w.state); err == nil || !strings.Contains(err.Error(), "the ledger counts 5 samples, the chunks 0") {
		t.Errorf("the audit says %v", err)
	}
}
