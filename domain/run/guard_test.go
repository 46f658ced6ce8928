package run_test

import (
	"slices"
	"strings"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// Each guard of Decide is taken away here: the fact that it would have refused is put straight into the fold, as code
// without the guard would. The audit must then see the break. A guard whose absence nobody notices guards nothing.
func TestGuardsCanFail(t *testing.T) {
	for _, tt := range slices.Concat(countingGuards(), schedulingGuards()) {
		t.Run(tt.name, func(t *testing.T) {
			// Slot a has contributed chunks 0 and 1; slot b has claimed chunk 2.
			begin := func() *world {
				w := newWorld(t, run.Spec{Batch: 10, Chunk: 10, Epochs: 1, Round: run.Round{Chunks: 6}}, dataset(120))
				w.begin("a/0", "b/0")
				w.train("a/0", 0, 1)
				w.must(w.accept("a/0"))
				w.must(run.AssignShard{Slot: "b/0", Chunks: []domain.ChunkID{2}}, run.Claim{Slot: "b/0", Count: 1})
				return w
			}
			w := begin()
			if err := tt.guard(w); domain.KindOf(err) != tt.kind {
				t.Errorf("with the guard: %v (%s), want %s", err, domain.KindOf(err), tt.kind)
			}
			if err := run.Audit(w.state); err != nil {
				t.Errorf("with the guard: %v", err)
			}
			w = begin()
			if strings.HasPrefix(tt.name, "fence") {
				w.must(run.ExpireLease{Slot: "b/0"})
			}
			tt.broke(w)
			if err := run.Audit(w.state); err == nil || !strings.Contains(err.Error(), tt.sees) {
				t.Errorf("without the guard the audit says %v, want %q", err, tt.sees)
			}
		})
	}
}

type guard struct {
	name  string
	guard func(w *world) error // the command as it is refused
	kind  domain.Kind
	broke func(w *world) // the same without the guard
	sees  string
}

// countingGuards keep the ledger.
func countingGuards() []guard {
	return []guard{
		{
			name: "ledger: a contribution is counted once",
			guard: func(w *world) error {
				again := w.accept("b/0")
				again.Chunks, again.Boundaries = []domain.ChunkID{0, 1}, []int{1, 2}
				facts, err := w.decide(again) // cut to nothing instead of counted
				if err == nil && len(facts) == 1 && facts[0].Data.EventName() == run.NameContributionCut {
					err = domain.Conflict("", "cut", "")
				}
				return err
			},
			kind: domain.KindConflict,
			broke: func(w *world) {
				w.apply(&run.ContributionAccepted{Slot: "b/0", Epoch: w.epoch("b/0"), Number: 1, Chunks: []domain.ChunkID{0, 1}, Samples: 20, Blob: digest("d2")})
			},
			sees: "in two places",
		},
		{
			name: "ledger: only samples of counted chunks count",
			guard: func(w *world) error {
				o := w.accept("a/0")
				o.Chunks = nil
				_, err := w.decide(o)
				return err
			},
			kind: domain.KindInvalid,
			broke: func(w *world) {
				w.apply(&run.ContributionAccepted{Slot: "a/0", Epoch: w.epoch("a/0"), Number: 2, Samples: 5, Blob: digest("d2")})
			},
			sees: "the ledger counts 25 samples, the chunks 20",
		},
		{
			name: "fence: an old epoch changes nothing",
			guard: func(w *world) error {
				w.must(run.ExpireLease{Slot: "b/0"})
				c := w.trained("b/0", 2)
				c.Epoch = 7
				_, err := w.decide(c)
				return err
			},
			kind: domain.KindFenced,
			broke: func(w *world) { // the chunk is back in the pool; the delta under the old lease counts it all the same
				w.apply(&run.ContributionAccepted{Slot: "b/0", Epoch: 7, Number: 1, Chunks: []domain.ChunkID{2}, Samples: 10, Blob: digest("d2")})
			},
			sees: "chunk 2 is in two places",
		},
	}
}

// schedulingGuards keep each chunk and each unit in one place.
func schedulingGuards() []guard {
	return []guard{
		{
			name: "claim: a chunk of another slot is not claimed",
			guard: func(w *world) error {
				_, err := w.decide(run.AssignShard{Slot: "a/0", Chunks: []domain.ChunkID{2}})
				return err
			},
			kind: domain.KindConflict,
			broke: func(w *world) {
				w.apply(&run.ChunksClaimed{Slot: "a/0", Epoch: w.epoch("a/0"), Chunks: []domain.ChunkID{2}})
			},
			sees: "chunk 2 is in two places",
		},
		{
			name: "steal: a claimed chunk is not stolen",
			guard: func(w *world) error {
				_, err := w.decide(run.Steal{From: "b/0", To: "a/0", Count: 1})
				return err
			},
			kind: domain.KindConflict,
			broke: func(w *world) {
				w.apply(&run.ChunksStolen{From: "b/0", To: "a/0", Chunks: []domain.ChunkID{2}})
			},
			sees: "chunk 2 is in two places",
		},
		{
			name: "lease: one unit measures at a time, on one slot",
			guard: func(w *world) error {
				_, err := w.decide(run.GrantLease{Slot: "c/0", Unit: run.UnitInit})
				return err
			},
			kind: domain.KindConflict,
			broke: func(w *world) {
				w.apply(&run.LeaseGranted{Slot: "c/0", Unit: run.UnitInit})
				w.apply(&run.LeaseGranted{Slot: "d/0", Unit: run.UnitInit})
			},
			sees: "2 slots make the first base",
		},
		{
			name: "round: nothing is merged that is not counted",
			guard: func(w *world) error {
				_, err := w.decide(w.merge())
				return err
			},
			kind: domain.KindConflict,
			broke: func(w *world) {
				w.apply(&run.RoundMerged{Round: 1, NextBase: digest("b1"), NextMomentum: digest("b2")})
			},
			sees: "by the table and in no list",
		},
		{
			name: "end: a run is completed with every sample counted",
			guard: func(w *world) error {
				_, err := w.decide(run.RecordEvaluation{Slot: "a/0", Epoch: w.epoch("a/0"), Samples: 1})
				return err
			},
			kind:  domain.KindConflict,
			broke: func(w *world) { w.apply(&run.Completed{}) },
			sees:  "completed with 20 of 120 samples",
		},
	}
}

// The norm gate, taken away: the same delta with the finding of no gate is counted, which the gate refuses.
func TestNormGateCanFail(t *testing.T) {
	reach := func(merges int) *world {
		w := newWorld(t, run.Spec{Batch: 10, Chunk: 10, Epochs: 1, Round: run.Round{Chunks: 1}}, dataset(100))
		w.begin("a/0")
		for i := range merges {
			w.train("a/0", domain.ChunkID(i))
			w.must(w.accept("a/0"), run.CloseRound{Round: i + 1}, w.merge(), run.OpenRound{}, run.GrantLease{Slot: "a/0", Unit: run.UnitTrain, Round: i + 2})
		}
		w.train("a/0", domain.ChunkID(merges))
		return w
	}
	for merges, want := range map[int]string{
		run.NormGateFrom - 1: run.NameContributionAccepted, // not in force yet
		run.NormGateFrom:     run.NameContributionRefused,
	} {
		w := reach(merges)
		wild := w.accept("a/0")
		wild.Inspection.Norm = 10.5
		facts, err := w.decide(wild)
		if err != nil || facts[0].Data.EventName() != want {
			t.Errorf("after %d merges: %v, %v, want %s", merges, facts, err, want)
		}
	}
	w := reach(run.NormGateFrom)
	edge := w.accept("a/0")
	edge.Inspection.Norm = run.NormGate // exactly the limit: the average is 1
	if facts, err := w.decide(edge); err != nil || facts[0].Data.EventName() != run.NameContributionAccepted {
		t.Errorf("at the limit: %v, %v", facts, err)
	}
}
