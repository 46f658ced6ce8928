package run_test

import (
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// counted has the slot's delta accepted, in the run's codec.
func counted(w *world, s domain.SlotID) run.OfferContribution {
	o := w.accept(s)
	o.Codec = w.state.Spec.Codec
	w.must(o)
	return o
}

// A merge with a coded way down names increment and residual; the increment stands in the state while it leads to the
// present base, the residual goes on, also over a round that changes nothing.
func TestWayDown(t *testing.T) {
	w := newWorld(t, run.Spec{Batch: 10, Chunk: 10, Epochs: 1, Round: run.Round{Chunks: 2}, CodecDown: run.CodecInt8}, dataset(80))
	w.begin("a/0")
	merge := func(c run.RecordMerge) { w.t.Helper(); w.must(c) }
	round := func() {
		t.Helper()
		w.train("a/0", w.state.Open.Chunks...)
		counted(w, "a/0")
		w.must(run.CloseRound{Round: w.state.Open.Number})
	}
	round()
	plain := w.merge()
	if _, err := w.decide(plain); domain.KindOf(err) != domain.KindInvalid {
		t.Fatalf("a merge without increment: %v", err)
	}
	first := plain
	first.Increment, first.NextResidual, first.IncrementBytes = digest("1c1"), digest("1e1"), 9
	base := w.state.Base
	merge(first)
	if s := w.state; s.Increment != first.Increment || s.Residual != first.NextResidual || s.Previous != base {
		t.Fatalf("increment %s, residual %s, from %s", s.Increment, s.Residual, s.Previous)
	}

	w.must(run.OpenRound{}, run.GrantLease{Slot: "a/0", Unit: run.UnitTrain, Round: 2})
	round()
	still := w.merge()
	still.NextBase, still.Increment, still.NextResidual = w.state.Base, digest("1c2"), digest("1e2")
	merge(still)
	if s := w.state; s.Increment != "" || s.Residual != still.NextResidual || s.Previous != base {
		t.Fatalf("the base stays, and increment %s leads from %s to it", s.Increment, s.Previous)
	}

	w.must(run.OpenRound{}, run.GrantLease{Slot: "a/0", Unit: run.UnitTrain, Round: 3})
	round()
	w.must(run.RevokeContribution{Slot: "a/0", Number: 1, Reason: "unreadable"})
	if s := w.state; s.Merged != 3 || s.Residual != still.NextResidual || s.Increment != "" {
		t.Fatalf("a round without contributions: %d merged, residual %s", s.Merged, s.Residual)
	}

	whole := newWorld(t, run.Spec{Batch: 10, Chunk: 10, Epochs: 1, Round: run.Round{Chunks: 2}, CodecDown: run.CodecFP32}, dataset(80))
	whole.begin("a/0")
	whole.train("a/0", whole.state.Open.Chunks...)
	counted(whole, "a/0")
	whole.must(run.CloseRound{Round: 1})
	if _, err := whole.decide(first); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("an increment that nobody asked for: %v", err)
	}
	whole.must(whole.merge())
}

// With a codec that feeds back what it loses the run remembers each slot's newest delta that counts.
func TestFedFollowsWhatCounts(t *testing.T) {
	w := newWorld(t, run.Spec{Batch: 10, Chunk: 10, Epochs: 1, Round: run.Round{Chunks: 4}, Codec: run.CodecTwoBit}, dataset(80))
	w.begin("a/0")
	w.train("a/0", w.state.Open.Chunks[:2]...)
	first := counted(w, "a/0")
	if w.state.Fed["a/0"] != first.Blob {
		t.Fatalf("fed %v", w.state.Fed)
	}
	w.train("a/0", w.state.Open.Chunks[2:]...)
	second := counted(w, "a/0")
	if w.state.Fed["a/0"] != second.Blob || second.Blob == first.Blob {
		t.Fatalf("fed %v", w.state.Fed)
	}
	w.must(run.RevokeContribution{Slot: "a/0", Number: 1, Reason: "unreadable"})
	if w.state.Fed["a/0"] != second.Blob {
		t.Fatalf("an older delta that is revoked: fed %v", w.state.Fed)
	}
	w.must(run.RevokeContribution{Slot: "a/0", Number: 2, Reason: "unreadable"})
	if len(w.state.Fed) != 0 {
		t.Fatalf("a delta that does not count any more is fed back: %v", w.state.Fed)
	}
	plain := newWorld(t, run.Spec{Batch: 10, Chunk: 10, Epochs: 1, Round: run.Round{Chunks: 4}, Codec: run.CodecInt8}, dataset(80))
	plain.begin("a/0")
	plain.train("a/0", plain.state.Open.Chunks...)
	counted(plain, "a/0")
	if plain.state.Fed != nil {
		t.Errorf("int8 is fed back: %v", plain.state.Fed)
	}
}
