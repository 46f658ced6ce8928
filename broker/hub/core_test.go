package hub

import (
	"testing"

	"tensorturn/domain/run"
)

func TestRunCompletes(t *testing.T) {
	w := newWorld(t)
	w.enrol("a", 1, 10)
	w.enrol("b", 2, 5)
	w.submit("r-1", nil)
	w.until("the run completes", func() bool { return w.state("r-1").Phase == run.PhaseCompleted })
	s := w.state("r-1")
	if l := s.Ledger(); l.Expected != 120 || l.Counted != l.Expected {
		t.Errorf("ledger %+v", l)
	}
	if st := w.core.Stats(); st != (Stats{}) {
		t.Errorf("something was refused: %+v", st)
	}
	t.Log(w.news())
}
