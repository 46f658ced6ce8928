package runs_test

import (
	"encoding/json"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
)

// Copies stand in the row of the slot whose chunks they are, so that those of a lost machine are not mixed with the rest.
func TestCopiesByHolder(t *testing.T) {
	slow, dead, idle := domain.Slot("slow-1", 0), domain.Slot("dead-1", 0), domain.Slot("idle-1", 0)
	v := runs.New()
	for i, d := range []event.Data{
		&run.Submitted{Spec: run.Spec{Epochs: 1, Chunk: 1, Round: run.Round{Chunks: 4}}, Data: run.Dataset{Samples: 4, Block: 1}},
		&run.ChunksCopied{Slot: idle, From: slow, Chunks: []domain.ChunkID{1}},
		&run.ChunksCopied{Slot: idle, From: dead, Chunks: []domain.ChunkID{2, 3}},
	} {
		v.Apply(event.Envelope{Kind: event.KindRun, Agg: "r-1", Seq: uint64(i + 1), Data: d})
	}
	r, _ := v.Get("r-1")
	got := map[domain.SlotID]int{}
	for _, s := range r.Slots {
		got[s.Slot] = s.Copied
	}
	if got[slow] != 1 || got[dead] != 2 || got[idle] != 0 || r.Totals.Copied != 3 {
		t.Errorf("copies by holder %v, %d in all", got, r.Totals.Copied)
	}
}

// What a machine said before its figures were bounded stands in logs for ever: lists of runs must bear it.
func TestHugeFiguresStayJSON(t *testing.T) {
	s := domain.Slot("m-1", 0)
	v := runs.New()
	for i, d := range []event.Data{
		&run.Submitted{Spec: run.Spec{Epochs: 1, Chunk: 1, Round: run.Round{Chunks: 4}}, Data: run.Dataset{Samples: 4, Block: 1}},
		&run.ChunkTrained{Slot: s, Steps: 1, Seconds: 1.7e308, Loss: 1.7e308},
		&run.ChunkTrained{Slot: s, Steps: 1, Seconds: 1.7e308, Loss: -1.7e308},
		&run.ChunkTrained{Slot: s, Steps: 1, Seconds: 2, Loss: 1},
	} {
		v.Apply(event.Envelope{Kind: event.KindRun, Agg: "r-1", Seq: uint64(i + 1), Data: d})
	}
	r, _ := v.Get("r-1")
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	if want := 2*run.MaxChunkSeconds + 2; r.Slots[0].Seconds != want {
		t.Errorf("%v s, want %v", r.Slots[0].Seconds, want)
	}
}
