package process

import (
	"testing"

	"tensorturn/agent/trainer"
)

// A dry step says what the program has resident, and needs no more of the chunk than its first steps. A program that runs out of memory in
// it says so: that alone fails the unit that asked.
func TestDryStep(t *testing.T) {
	tr := opened(t, newOpener(t, nil), "good").(*Trainer)
	steps := 0
	m, err := tr.Dry(t.Context(), 0, func(trainer.Progress) { steps++ })
	if err != nil || steps == 0 || machineMemory() > 0 && m.Host < 1<<20 || m.Device != 0 {
		t.Errorf("%d steps take %+v, %v", steps, m, err)
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	for mode, memory := range map[string]bool{"MemoryError": true, "early end": false} {
		tr := opened(t, newOpener(t, nil), mode).(*Trainer)
		_, err := tr.Dry(t.Context(), 0, func(trainer.Progress) {})
		f, ok := err.(*Failure)
		if !ok || f.OutOfMemory() != memory {
			t.Errorf("%s: %v", mode, err)
		}
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}
}
