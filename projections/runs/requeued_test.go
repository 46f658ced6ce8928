package runs_test

import (
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
)

// Whatever makes a slot's work void puts its chunks on the queue again, and is counted; what goes back in good order is not.
func TestRequeuedChunks(t *testing.T) {
	const slot = domain.SlotID("m1/0")
	two := []domain.ChunkID{4, 5}
	for _, c := range []struct {
		name string
		fact event.Data
		want int
	}{
		{"lost", &run.LeaseExpired{Slot: slot, Requeued: two}, 2},
		{"failed", &run.TaskFailed{Slot: slot, Returned: two}, 2},
		{"refused", &run.ContributionRefused{Slot: slot, Why: run.RefusedNorm, Returned: two}, 2},
		{"cut", &run.ContributionCut{Slot: slot, Keep: 1, Returned: two}, 2},
		{"revoked", &run.ContributionRevoked{Slot: slot, Samples: 2, Returned: two}, 2},
		{"released", &run.LeaseReleased{Slot: slot, Reason: "drained", Returned: two}, 0},
		{"left out", &run.ContributionAccepted{Slot: slot, Chunks: []domain.ChunkID{1}, Returned: two}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := runs.New()
			v.Apply(event.Envelope{Kind: event.KindRun, Agg: "r", Seq: 1,
				Data: &run.Submitted{Spec: run.Spec{Epochs: 1, Chunk: 1, Round: run.Round{Chunks: 8}}, Data: run.Dataset{Samples: 8, Block: 1}}})
			v.Apply(event.Envelope{Kind: event.KindRun, Agg: "r", Seq: 2, Data: &run.LeaseGranted{Slot: slot, Unit: run.UnitTrain, Round: 1}})
			v.Apply(event.Envelope{Kind: event.KindRun, Agg: "r", Seq: 3, Data: c.fact})
			r, _ := v.Get("r")
			if r.Totals.Requeued != c.want || r.Slots[0].Requeued != c.want {
				t.Errorf("%d chunks requeued, %d of the slot, want %d", r.Totals.Requeued, r.Slots[0].Requeued, c.want)
			}
		})
	}
}
