package run_test

import (
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// Two states folded from the same facts share nothing that one of them changes, and a clone is its own.
func TestStatesShareNothing(t *testing.T) {
	w := newWorld(t, run.Spec{Batch: 10, Chunk: 10, Epochs: 1, Round: run.Round{Chunks: 8}}, dataset(160))
	w.begin("a/0", "b/0")
	w.must(run.AssignShard{Slot: "a/0", Chunks: []domain.ChunkID{0, 1, 2, 3}}, run.Claim{Slot: "a/0", Count: 2})
	w.must(w.trained("a/0", 0))
	other, clone := w.fold(), w.state.Clone()
	if d := difference(w.state, clone); d != "" {
		t.Fatalf("the clone differs:\n%s", d)
	}
	w.must(run.Steal{From: "a/0", To: "b/0", Count: 1}, run.ReturnShard{Slot: "a/0"}, w.trained("a/0", 1), w.accept("a/0"),
		run.ExpireLease{Slot: "b/0"}, run.AssignShard{Slot: "a/0", Chunks: []domain.ChunkID{2, 3}}, run.Claim{Slot: "a/0", Count: 2}, run.Pause{})
	if d := difference(other, clone); d != "" {
		t.Errorf("evolving one state changed another:\n%s", d)
	}
	for _, s := range []*run.State{other, clone} {
		if err := run.Audit(s); err != nil {
			t.Error(err)
		}
	}
	if d := difference(w.state, w.fold()); d != "" {
		t.Errorf("the facts were changed after they were folded:\n%s", d)
	}
}

// largeRound deals, claims, reports and counts a round of 32,768 chunks among eight slots.
func largeRound(t tester) *world {
	w := newWorld(t, run.Spec{Batch: 1, Chunk: 1, Epochs: 1, Round: run.Round{Chunks: run.MaxRoundChunks}}, dataset(run.MaxRoundChunks))
	w.large = true
	var slots []domain.SlotID
	for i := range 8 {
		slots = append(slots, domain.Slot("m", i))
	}
	w.begin(slots...)
	const share = run.MaxRoundChunks / 8
	for i, slot := range slots {
		chunks := make([]domain.ChunkID, share)
		for j := range chunks {
			chunks[j] = domain.ChunkID(i*share + j)
		}
		w.must(run.AssignShard{Slot: slot, Chunks: chunks})
	}
	for j := range share {
		for _, slot := range slots {
			w.must(run.Claim{Slot: slot, Count: 1})
			w.must(w.trained(slot, w.state.LeaseOf(slot).Claimed[0]))
		}
		if j%64 == 63 {
			for i := range slots[1:] {
				w.must(run.Steal{From: slots[i], To: slots[i+1], Count: min(1, len(w.state.ShardOf(slots[i])))})
				w.must(run.Steal{From: slots[i+1], To: slots[i], Count: 1})
			}
		}
		if j == share-2 {
			break // the last chunk of each shard is not enough for the steals above
		}
	}
	for _, slot := range slots {
		w.must(w.accept(slot))
	}
	return w
}

// The largest round costs nothing per fact that grows with the round. The bound is generous: a quadratic fold takes
// minutes.
func BenchmarkLargestRound(b *testing.B) {
	b.ReportAllocs()
	facts := 0
	for b.Loop() {
		facts += len(largeRound(b).log)
	}
	b.ReportMetric(float64(facts)/b.Elapsed().Seconds(), "facts/s")
}

// BenchmarkFold folds the log of a large round: what a restarted hub does.
func BenchmarkFold(b *testing.B) {
	log := largeRound(b).log
	b.ResetTimer()
	for b.Loop() {
		fold(log)
	}
	b.ReportMetric(float64(len(log))*float64(b.N)/b.Elapsed().Seconds(), "facts/s")
}

func fold(log []event.Envelope) *run.State {
	var s *run.State
	for _, e := range log {
		s = run.Evolve(s, e)
	}
	return s
}
