package usage

import (
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// Who holds the base before gets the increment, who missed a round the whole base; a round without an increment is whole
// for all.
func TestIncrementsAreCounted(t *testing.T) {
	x := told{v: New()}
	x.at(0, submitted(run.Builtin), &run.LeaseGranted{Slot: "a/0", Unit: run.UnitInit}, &run.Initialised{Slot: "a/0"})
	down := func(machine int) int64 { return x.v.Since(time.Time{}).Machines[machine].BytesDown }
	train := func(round int, slots ...string) {
		for _, s := range slots {
			x.at(round, &run.LeaseGranted{Slot: domain.SlotID(s), Unit: run.UnitTrain, Round: round})
		}
	}
	train(1, "a/0", "b/0", "c/0")
	x.at(1, &run.RoundMerged{Round: 1, BaseBytes: 500, IncrementBytes: 60})
	train(2, "a/0", "b/0", "b/1")
	x.at(2, &run.RoundMerged{Round: 2, BaseBytes: 500, IncrementBytes: 61})
	train(3, "a/0", "c/0")
	x.at(3, &run.RoundMerged{Round: 3, BaseBytes: 500})
	train(4, "a/0")
	for i, want := range []int64{60 + 61 + 500, 500 + 60, 500 + 500} {
		if got := down(i); got != want {
			t.Errorf("machine %d fetched %d bytes, want %d", i, got, want)
		}
	}
}
