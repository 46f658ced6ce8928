package plan_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// TestStealsNeverReverse trains random pools at steady, known speeds: a chunk never comes back by a steal to a slot that
// lost it by one, two slots never steal from each other in a round, and the steals of a round are bounded by the slots.
func TestStealsNeverReverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "slots")
		speeds := make([]float64, n)
		for i := range speeds {
			speeds[i] = math.Exp2(rapid.Float64Range(0, 4).Draw(t, "speed")) * 25
		}
		tr := newTrial(t, rapid.Uint64().Draw(t, "seed"), 120*time.Second, speeds, rapid.IntRange(1, 60).Draw(t, "chunks"), rapid.IntRange(1, 3).Draw(t, "rounds"))
		tr.jitter = 0
		surprise := rapid.Bool().Draw(t, "a slot is slower than believed")
		for i, a := range tr.agents {
			a.rate, a.upload = a.speed, rapid.Float64Range(0, 30).Draw(t, "upload")
			if surprise && i == 0 {
				a.speed /= 4
			}
		}
		tr.play()
		if !surprise {
			checkSteals(t, tr.story, n)
		}
		checkLedger(t, tr.run(trialRun))
	})
}

// checkSteals walks over all facts of a story.
func checkSteals(t *rapid.T, s *story, slots int) {
	type pair struct{ from, to domain.SlotID }
	lost := map[string]bool{}
	done := map[pair]bool{}
	steals := 0
	for _, d := range s.facts {
		switch d := d.(type) {
		case *run.RoundOpened:
			clear(lost)
			clear(done)
			steals = 0
		case *run.ChunksStolen:
			steals++
			if steals > 2*slots {
				t.Fatalf("%d steals in a round of %d slots at steady speeds", steals, slots)
			}
			if done[pair{d.To, d.From}] {
				t.Fatalf("%s steals from %s, which stole from it before", d.To, d.From)
			}
			done[pair{d.From, d.To}] = true
			for _, c := range d.Chunks {
				if lost[fmt.Sprint(d.To, c)] {
					t.Fatalf("chunk %d comes back to %s", c, d.To)
				}
				lost[fmt.Sprint(d.From, c)] = true
			}
		}
	}
}

// checkLedger demands that every sample was counted once.
func checkLedger(t tester, r *run.State) {
	if l := r.Ledger(); l.Counted != l.Expected {
		t.Fatalf("%d samples are counted, %d expected", l.Counted, l.Expected)
	}
}

// TestChaos throws random events at plan: slots that fall silent, die, drain, are quarantined and come back, trainers that
// fail, pauses, deadlines, speeds from nowhere. Nothing plan proposes is ever refused or idle (settle fails the test), no
// slot ever works for two runs, and once the trouble ends every run completes with an exact ledger.
func TestChaos(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStory(t, 120*time.Second)
		for i := range rapid.IntRange(1, 5).Draw(t, "slots") {
			s.slot(domain.SlotID(fmt.Sprintf("%c/0", 'a'+i)))
		}
		runs := rapid.IntRange(1, 2).Draw(t, "runs")
		for i := range runs {
			s.submit(domain.RunID(fmt.Sprint("r-", i)), rapid.IntRange(20, 400).Draw(t, "samples"), 10, rapid.IntRange(1, 30).Draw(t, "round"),
				rapid.IntRange(1, 2).Draw(t, "epochs"), rapid.IntRange(0, 3).Draw(t, "most"), rapid.SampledFrom([]float64{0, 100}).Draw(t, "deadline"), rapid.IntRange(0, 2).Draw(t, "every"))
		}
		for range rapid.IntRange(10, 120).Draw(t, "events") {
			s.trouble(t)
			s.settle()
		}
		s.heal()
		for i := 0; ; i++ {
			s.settle()
			if !slices.ContainsFunc(s.runs, func(r *run.State) bool { return !r.Done() }) {
				break
			}
			if i > 2000 {
				t.Fatalf("the runs do not end:\n%s%s", s.show("r-0"), s.show(s.runs[runs-1].ID))
			}
			for _, r := range s.runs {
				s.labour(r, len(s.slots), math.MaxInt)
			}
		}
		for _, r := range s.runs {
			if r.Phase == run.PhaseCompleted {
				checkLedger(t, r)
			}
		}
	})
}

// trouble lets one thing happen.
func (s *story) trouble(t *rapid.T) {
	p := &s.slots[rapid.IntRange(0, len(s.slots)-1).Draw(t, "slot")]
	r := s.runs[rapid.IntRange(0, len(s.runs)-1).Draw(t, "run")]
	switch what := rapid.SampledFrom([]string{"work", "work", "work", "speed", "suspect", "lost", "draining", "quarantined", "online", "online",
		"age", "pause", "resume", "resume", "fail"}).Draw(t, "event"); what {
	case "work":
		s.labour(r, rapid.IntRange(1, len(s.slots)).Draw(t, "workers"), rapid.IntRange(1, 4).Draw(t, "chunks"))
	case "speed":
		p.Speed = rapid.SampledFrom([]float64{0, 0.1, 1, 7, 30}).Draw(t, "speed")
		p.Power.CPU = rapid.SampledFrom([]float64{0, 1e9, 5e11}).Draw(t, "power")
		p.Link = rapid.SampledFrom([]float64{0, 1e3, 1e8}).Draw(t, "link")
		p.Upload = rapid.SampledFrom([]float64{0, 1, 50}).Draw(t, "upload")
		p.Busy = rapid.SampledFrom([]float64{0, 3, 300}).Draw(t, "busy")
		p.Shown = rapid.Float64Range(0, p.Busy).Draw(t, "shown")
	case "lost":
		set(s.t, p, what, 0)
		for _, r := range s.runs {
			if r.Leases[p.ID] != nil {
				s.must(r.ID, run.ExpireLease{Slot: p.ID})
			}
		}
	case "suspect", "draining", "quarantined", "online":
		set(s.t, p, what, 0)
	case "age":
		s.ages[r.ID] += rapid.Float64Range(0, 200).Draw(t, "seconds")
	case "pause":
		s.do(r.ID, run.Pause{})
	case "resume":
		s.do(r.ID, run.Resume{})
	case "fail":
		if l := r.Leases[p.ID]; l != nil && l.Unit == run.UnitTrain && r.TaskFails[p.ID] == 0 {
			s.must(r.ID, run.FailTask{Slot: p.ID, Epoch: l.Epoch, Error: "broken"})
		}
	}
}

// labour lets the first so many leased slots of the run do what they were told: at most n chunks each, and uploads.
func (s *story) labour(r *run.State, slots, n int) {
	if r.LeaseFor(run.UnitInit) != nil {
		s.initialise(r.ID)
	}
	if r.LeaseFor(run.UnitEvaluate) != nil {
		s.evaluated(r.ID)
	}
	if _, waits := r.NeedsMerge(); waits {
		s.merge(r.ID)
	}
	for _, slot := range r.Slots() {
		l := r.TrainLease(slot)
		if l == nil || slots == 0 {
			continue
		}
		slots--
		if l.Contribute != "" && len(l.Trained) == 0 {
			s.must(r.ID, run.ReleaseLease{Slot: slot, Reason: "nothing to contribute"})
			continue
		}
		if l.Contribute != "" {
			s.contribute(r.ID, slot)
			continue
		}
		s.trained(r.ID, slot, min(n, len(l.Claimed)))
	}
}

// heal ends all trouble.
func (s *story) heal() {
	for i := range s.slots {
		set(s.t, &s.slots[i], "online", 0)
		s.slots[i].Busy, s.slots[i].Shown = 0, 0
	}
	for _, r := range s.runs {
		s.do(r.ID, run.Resume{})
		s.ages[r.ID] = 0
	}
}
