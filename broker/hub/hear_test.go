package hub

import (
	"testing"
	"time"

	"tensorturn/broker/wire"
)

// TestReadyIsProgress: getting ready may take two leases, a chunk one. Whoever is ready after more than one begins to be
// measured then; one that only says again what it said does not.
func TestReadyIsProgress(t *testing.T) {
	at := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	var s slotMemory
	for _, step := range []struct {
		phase wire.Phase
		after time.Duration
		moved bool
	}{
		{wire.PhasePreparing, 0, true}, {wire.PhasePreparing, time.Minute, false}, {wire.PhaseTraining, 2 * time.Minute, true}, {wire.PhaseTraining, time.Minute, false},
	} {
		at = at.Add(step.after)
		s.hear("r-1", wire.SlotReport{Epoch: 7, Phase: step.phase}, at)
		if s.moved.Equal(at) != step.moved {
			t.Errorf("%s after %v: moved at %v, now %v", step.phase, step.after, s.moved, at)
		}
	}
}
