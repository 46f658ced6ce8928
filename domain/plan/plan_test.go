package plan_test

import (
	"fmt"
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/plan"
	"tensorturn/domain/run"
)

// leased makes a pool of n slots whose run has its first base.
func leased(t tester, n, chunks int) *story {
	s := newStory(t, 120*time.Second)
	for i := range n {
		s.slot(domain.Slot(domain.MachineID(fmt.Sprintf("m%04d", i)), 0)).Speed = float64(1 + i%7)
	}
	s.submit("r-1", 1000*chunks, 1000, chunks, 1, 0, 0, 0)
	s.settle()
	s.initialise("r-1")
	return s
}

// TestLeasesAreBounded plans at the limit of leases: more slots than a run may lease leave the slowest alone.
func TestLeasesAreBounded(t *testing.T) {
	for _, tc := range []struct{ slots, leases int }{{run.MaxLeases - 1, run.MaxLeases - 1}, {run.MaxLeases, run.MaxLeases}, {run.MaxLeases + 24, run.MaxLeases}} {
		s := leased(t, tc.slots, 20000)
		s.settle()
		r := s.run("r-1")
		if len(r.Leases) != tc.leases {
			t.Errorf("%d slots get %d leases, want %d", tc.slots, len(r.Leases), tc.leases)
		}
		slowest := 0
		for _, p := range s.slots {
			if p.Speed == 1 && r.Leases[p.ID] == nil {
				slowest++
			}
		}
		if want := tc.slots - tc.leases; slowest != want {
			t.Errorf("%d of the slowest slots are left out, want %d", slowest, want)
		}
	}
}

// TestDealCoversTheRound deals the largest round there may be, in consecutive runs and proportion to speed.
func TestDealCoversTheRound(t *testing.T) {
	s := leased(t, 7, run.MaxRoundChunks)
	s.settle()
	r := s.run("r-1")
	next := domain.ChunkID(0)
	for i, p := range s.slots {
		held := append(append([]domain.ChunkID{}, r.Leases[p.ID].Claimed...), r.ShardOf(p.ID)...)
		if held[0] != next || held[len(held)-1] != next+domain.ChunkID(len(held)-1) {
			t.Errorf("%s is dealt %d to %d, want a run from %d on", p.ID, held[0], held[len(held)-1], next)
		}
		if share := run.MaxRoundChunks * (i + 1) / 28; len(held) < share-1 || len(held) > share+1 {
			t.Errorf("%s is dealt %d chunks, want about %d", p.ID, len(held), share)
		}
		next += domain.ChunkID(len(held))
	}
	if next != run.MaxRoundChunks {
		t.Errorf("%d chunks are dealt, want %d", next, run.MaxRoundChunks)
	}
}

// TestSlowUploadIsProbed shows a slot whose upload is reckoned to cost more than it can do: it gets nothing, but one
// chunk in every ProbeEvery-th round, so that one bad measurement is corrected.
func TestSlowUploadIsProbed(t *testing.T) {
	s := newStory(t, 120*time.Second)
	s.slot("a/0").Speed, s.slot("b/0").Speed = 10, 10
	s.slot("b/0").Upload = 1000
	s.submit("r-1", 80, 10, 8, 2*plan.ProbeEvery, 0, 0, 0)
	s.settle()
	s.initialise("r-1")
	for round := 1; round <= 2*plan.ProbeEvery; round++ {
		s.settle()
		r := s.run("r-1")
		if got, want := r.TrainLease("b/0") != nil, round%plan.ProbeEvery == 0; got != want {
			t.Errorf("round %d: b trains: %v, want %v", round, got, want)
		}
		for r.Open != nil && !r.Open.Closed {
			s.labour(r, 2, 100)
			s.settle()
		}
		s.merge("r-1")
	}
}

// TestNextReadsOnly plans twice on the same snapshot: the same proposal, and the run is untouched.
func TestNextReadsOnly(t *testing.T) {
	s := leased(t, 5, 40)
	for range 3 {
		snap := s.snapshot()
		first := fmt.Sprintf("%#v", plan.Next(snap))
		before := s.show("r-1")
		if again := fmt.Sprintf("%#v", plan.Next(snap)); again != first {
			t.Fatalf("the same snapshot gives\n%s\nand then\n%s", first, again)
		}
		if after := s.show("r-1"); after != before {
			t.Fatalf("planning changed the run:\n%s\nwas\n%s", after, before)
		}
		for _, a := range plan.Next(snap) {
			if _, err := s.do(a.Run, a.Command); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// BenchmarkNext asks for nothing to do in the largest round, on a pool of 100 slots: what each sync costs.
func BenchmarkNext(b *testing.B) {
	s := leased(b, 100, run.MaxRoundChunks)
	s.settle()
	snap := s.snapshot()
	b.ReportAllocs()
	for b.Loop() {
		plan.Next(snap)
	}
}
