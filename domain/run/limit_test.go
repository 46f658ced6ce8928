package run_test

import (
	"fmt"
	"slices"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/event/eventtest"
	"tensorturn/domain/run"
)

// A round of the greatest size, scattered as badly as can be, fits into one event; so does everything that lists it.
func TestLargestRoundFitsAnEvent(t *testing.T) {
	w := newWorld(t, run.Spec{Batch: 1, Chunk: 1, Epochs: 16, Round: run.Round{Chunks: run.MaxRoundChunks}}, dataset(run.MaxChunks/16))
	w.must(run.GrantLease{Slot: "a/0", Unit: run.UnitInit})
	w.must(w.initialise("a/0"), run.OpenRound{}, run.GrantLease{Slot: "a/0", Unit: run.UnitTrain, Round: 1})
	pool := w.state.Open.Pool
	if len(pool) != run.MaxRoundChunks || len(w.state.Chunks) != run.MaxChunks {
		t.Fatalf("%d chunks of %d", len(pool), len(w.state.Chunks))
	}
	largest := make([]domain.ChunkID, run.MaxRoundChunks)
	for i := range largest {
		largest[i] = domain.ChunkID(run.MaxChunks - 1 - 2*i)
	}
	for _, f := range []event.Data{
		&run.RoundOpened{Base: digest("b"), Chunks: largest},
		&run.ContributionAccepted{Slot: "a/0", Chunks: largest[:len(largest)/2], Returned: largest[len(largest)/2:], Blob: digest("d")},
		&run.LeaseExpired{Slot: "a/0", Reason: string(make([]byte, domain.MaxReasonLength)), Requeued: largest},
		&run.RoundClosed{Missing: largest},
	} {
		fits(t, f)
	}
	if n := len((&run.RoundOpened{Chunks: largest}).Line()); n > 400 {
		t.Errorf("its line is %d bytes long", n)
	}
	w.must(run.AssignShard{Slot: "a/0", Chunks: pool})
}

func fits(t *testing.T, f event.Data) {
	t.Helper()
	b, err := event.Encode(eventtest.Sample(f, 1))
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > domain.MaxEventBytes {
		t.Errorf("%s takes %d bytes, the limit is %d", f.EventName(), len(b), domain.MaxEventBytes)
	}
}

// A round holds MaxContributions accepted deltas, all named by the event of its merge; one more is refused, and the
// round may close however few chunks that is.
func TestContributionsOfARoundAreLimited(t *testing.T) {
	const chunks = 3 * run.MaxContributions
	w := newWorld(t, run.Spec{Batch: 1, Chunk: 1, Epochs: 1, Round: run.Round{Chunks: chunks}}, dataset(chunks))
	slot := domain.Slot(domain.MachineID(fmt.Sprintf("%048d", 7)), 63) // the longest name
	w.begin(slot)
	for i := range run.MaxContributions {
		for _, f := range []event.Data{
			&run.ShardAssigned{Slot: slot, Chunks: []domain.ChunkID{domain.ChunkID(i)}},
			&run.ChunksClaimed{Slot: slot, Chunks: []domain.ChunkID{domain.ChunkID(i)}},
			&run.ContributionAccepted{Slot: slot, Number: i + 1, Chunks: []domain.ChunkID{domain.ChunkID(i)}, Samples: 1, Steps: 1, Blob: digest("d"), Codec: run.CodecE3M0},
		} {
			w.apply(f)
		}
	}
	if err := run.Audit(w.state); err != nil {
		t.Fatal(err)
	}
	w.train(slot, chunks-1)
	if _, err := w.decide(w.accept(slot)); domain.KindOf(err) != domain.KindConflict {
		t.Errorf("contribution %d: %v", run.MaxContributions+1, err)
	}
	w.must(run.CloseRound{Round: 1})
	facts, err := w.decide(w.merge())
	if err != nil {
		t.Fatal(err)
	}
	fits(t, facts[0].Data)
}

// All leases of a run end in one atomic batch, so their number is limited.
func TestLeasesAreLimited(t *testing.T) {
	w := newWorld(t, run.Spec{Batch: 1, Chunk: 1, Epochs: 1, Round: run.Round{Chunks: 100}}, dataset(100))
	w.begin("first/0")
	slot := func(i int) domain.SlotID { return domain.Slot(domain.MachineID(fmt.Sprintf("m-%d", i/64)), i%64) }
	for i := range run.MaxLeases - 1 {
		w.must(run.GrantLease{Slot: slot(i), Unit: run.UnitTrain, Round: 1})
	}
	if _, err := w.decide(run.GrantLease{Slot: "last/0", Unit: run.UnitTrain, Round: 1}); domain.KindOf(err) != domain.KindConflict {
		t.Errorf("lease %d: %v", run.MaxLeases+1, err)
	}
	facts, err := w.decide(run.Cancel{})
	if err != nil || len(facts) != run.MaxLeases+1 || len(facts) > domain.MaxBatchEvents {
		t.Errorf("cancelling gives %d facts, %v", len(facts), err)
	}
}

// The list of evaluations in the state is bounded; the log holds all.
func TestEvaluationsAreKeptInBounds(t *testing.T) {
	w := newWorld(t, run.Spec{}, dataset(100))
	for i := range run.MaxEvaluationsKept + 5 {
		w.apply(&run.Evaluated{Round: i})
	}
	got := w.state.Evaluations
	if len(got) != run.MaxEvaluationsKept || got[len(got)-1].Round != run.MaxEvaluationsKept+4 || got[0].Round != 5 {
		t.Errorf("%d kept, from round %d to %d", len(got), got[0].Round, got[len(got)-1].Round)
	}
}

// Carried chunks come on top of B, but no round is larger than the limit: then it owns fewer new ones, and what is
// carried comes first. B stays what the first round recorded.
func TestCarriedChunksStayWithinTheLargestRound(t *testing.T) {
	const b = run.MaxRoundChunks
	w := newWorld(t, run.Spec{Batch: 1, Chunk: 1, Epochs: 1, Round: run.Round{Chunks: b}}, dataset(3*b))
	w.large = true
	w.begin("a/0")
	half := w.state.Open.Pool[:b/2]
	w.train("a/0", half...)
	w.must(w.accept("a/0"), run.CloseRound{Round: 1}, w.merge(), run.OpenRound{})
	if err := run.Audit(w.state); err != nil {
		t.Error(err)
	}
	o := w.state.Open
	if len(o.Chunks) != b || o.Chunks[0] != b/2 || w.state.NextChunk != b+b/2 || w.state.Budget != b {
		t.Errorf("round 2 has %d chunks from %d, next is %d, B %d", len(o.Chunks), o.Chunks[0], w.state.NextChunk, w.state.Budget)
	}
}

func TestBudgetIsFixedByTheFirstRound(t *testing.T) {
	w := newWorld(t, run.Spec{Batch: 10, Chunk: 10, Epochs: 1, Round: run.Round{Chunks: 4}}, dataset(50))
	w.begin("a/0")
	w.train("a/0", 0, 1, 2)
	w.must(w.accept("a/0"), run.CloseRound{Round: 1}, w.merge(), run.OpenRound{})
	if len(w.state.Open.Chunks) != 2 || w.state.Budget != 3 {
		t.Errorf("the second round has %d chunks, B is %d", len(w.state.Open.Chunks), w.state.Budget)
	}
}

// Rounds are as even as whole chunks allow: none is more than one chunk larger than another, none is larger than asked
// for, and there are no more of them than when each took its fill.
func TestRoundsAreEven(t *testing.T) {
	for chunks := 2; chunks <= 24; chunks++ {
		for wish := 1; wish <= chunks+1; wish++ {
			w := newWorld(t, run.Spec{Batch: 1, Chunk: 1, Epochs: 1, Round: run.Round{Chunks: wish}}, dataset(chunks))
			w.begin("a/0")
			least, most, rounds := chunks, 0, 0
			for w.state.Open != nil {
				own := slices.Clone(w.state.Open.Chunks)
				least, most, rounds = min(least, len(own)), max(most, len(own)), rounds+1
				w.train("a/0", own...)
				w.must(w.accept("a/0"), run.CloseRound{Round: rounds}, w.merge())
				if w.state.WantsRound() {
					w.must(run.OpenRound{}, run.GrantLease{Slot: "a/0", Unit: run.UnitTrain, Round: rounds + 1})
				}
			}
			if most-least > 1 || most > wish || rounds != (chunks+wish-1)/wish {
				t.Errorf("%d chunks in rounds of %d: %d rounds of %d to %d", chunks, wish, rounds, least, most)
			}
		}
	}
}
