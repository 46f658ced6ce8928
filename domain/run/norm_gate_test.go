package run

import (
	"testing"

	"tensorturn/domain"
)

// TestNormGateLetsALateReturnIn: towards the end of a run the average has sunk with the learning rate. A slot that comes
// back with an empty optimizer then takes steps as large as the run's early ones: they are let in, larger ones are not.
// Seen with three real agents: a restarted one was quarantined and a healthy run paused.
func TestNormGateLetsALateReturnIn(t *testing.T) {
	s := &State{Merged: NormGateFrom, Refusals: map[domain.MachineID]int{}, TaskFails: map[domain.SlotID]int{},
		Open: &OpenRoundState{Numbers: map[domain.SlotID]int{}}}
	learn := func(norm float64) { s.accepted(&ContributionAccepted{Slot: "a/0", Norm: norm, Steps: 1}) }
	for range 20 {
		learn(1)
	}
	early := s.NormLimit()
	for range 200 {
		learn(0.001)
	}
	late := s.NormLimit()
	if early != NormGate {
		t.Errorf("early limit %v, want ten times the average", early)
	}
	if late < 0.99 || late > 1 {
		t.Errorf("late limit %v, want what was usual early", late)
	}
	if withoutFloor := NormGate * s.NormAverage; withoutFloor > 0.5 {
		t.Errorf("the control does not show the fault: without the floor the limit is %v", withoutFloor)
	}
}
