package goodput

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// Whatever the log says, in whatever order: the kinds of a slot sum to its connected time, nothing is negative, nobody was there for
// longer than the run, and what is told between the records is what is told at their end.
func TestTheKindsSumToTheTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := New("r-1", drawAbsences(t)...)
		at := start
		for i, n := 0, rapid.IntRange(1, 120).Draw(t, "facts"); i < n; i++ {
			at = at.Add(time.Duration(rapid.Int64Range(-1e9, 20e9).Draw(t, "later")))
			l.Apply(drawEvent(t, uint64(i+1), at))
			r, err := l.Report()
			if domain.KindOf(err) == domain.KindNotFound {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Audit(); err != nil {
				t.Fatalf("after %d facts: %v\n%s", i+1, err, drawn(r))
			}
			if again, _ := l.Report(); drawn(again) != drawn(r) {
				t.Fatalf("the report changes by being read:\n%s%s", drawn(r), drawn(again))
			}
		}
	})
}

func drawAbsences(t *rapid.T) []Absence {
	var out []Absence
	for range rapid.IntRange(0, 3).Draw(t, "absences") {
		from := start.Add(time.Duration(rapid.Int64Range(0, 300e9).Draw(t, "from")))
		a := Absence{Machine: rapid.SampledFrom([]domain.MachineID{"", "a", "b"}).Draw(t, "who"), From: from}
		if rapid.Bool().Draw(t, "ends") {
			a.To = from.Add(time.Duration(rapid.Int64Range(0, 60e9).Draw(t, "long")))
		}
		out = append(out, a)
	}
	return out
}

// drawEvent draws a fact that need not follow from those before it.
func drawEvent(t *rapid.T, seq uint64, at time.Time) event.Envelope {
	m := rapid.SampledFrom([]domain.MachineID{"a", "b"}).Draw(t, "machine")
	slot := rapid.SampledFrom([]domain.SlotID{"a/0", "a/0", "a/1", "b/0"}).Draw(t, "slot")
	chunk := domain.ChunkID(rapid.IntRange(0, 3).Draw(t, "chunk"))
	chunks := []domain.ChunkID{chunk, (chunk + 1) % 4}
	round := rapid.IntRange(1, 3).Draw(t, "round")
	facts := []event.Data{
		&run.LeaseGranted{Slot: slot, Unit: run.UnitTrain}, &run.LeaseGranted{Slot: slot, Unit: run.UnitEvaluate}, &run.LeaseGranted{Slot: slot, Unit: run.UnitInit},
		&run.ChunkTrained{Slot: slot, Chunk: chunk, Seconds: rapid.SampledFrom([]float64{0, 0.5, 3, 12, 400, 1e300, math.NaN(), -2}).Draw(t, "seconds")},
		&run.ChunkTrained{Slot: slot, Chunk: chunk, Seconds: 5}, &run.ChunkTrained{Slot: slot, Chunk: chunk, Seconds: 6}, &run.ChunkTrained{Slot: slot, Chunk: chunk, Seconds: 7},
		&run.ContributionRequested{Slot: slot}, &run.ContributionAccepted{Slot: slot, Chunks: chunks},
		&run.ContributionRefused{Slot: slot}, &run.ContributionCut{Slot: slot, Keep: rapid.IntRange(0, 1).Draw(t, "keep"), Returned: chunks},
		&run.ContributionRevoked{Slot: slot, Returned: chunks}, &run.DeltaAdopted{Slot: slot, Chunks: chunks, Resume: rapid.Bool().Draw(t, "resume")},
		&run.LeaseReleased{Slot: slot}, &run.LeaseReleased{Slot: slot, Returned: chunks}, &run.LeaseExpired{Slot: slot}, &run.TaskFailed{Slot: slot}, &run.EvaluationFailed{Slot: slot},
		&run.RoundOpened{Round: round}, &run.RoundClosed{Round: round}, &run.RoundMerged{Round: round}, &run.Paused{}, &run.Resumed{},
	}
	machines := []event.Data{
		&machine.BecameOnline{Slots: 2}, &machine.BecameOnline{Slots: 1, Restarted: true}, &machine.BecameSuspect{Silent: 15}, &machine.BecameSuspect{Silent: 1e9}, &machine.BecameLost{},
		&machine.BecameDraining{}, &machine.BecameDrained{}, &machine.BecameQuarantined{Reason: "three"}, &machine.Resumed{}, &machine.BecameRevoked{},
		&machine.SlotsPaused{Slots: []int{0}, Cause: machine.ByOwner}, &machine.SlotsResumed{Slots: []int{0}, Cause: machine.ByOwner},
	}
	e := event.Envelope{Seq: seq, Kind: event.KindRun, Agg: "r-1", Time: at}
	switch n := rapid.IntRange(0, 19).Draw(t, "kind"); {
	case seq == 3:
		e.Data = &run.Submitted{Spec: run.Spec{Batch: 100, Chunk: 100, Epochs: 1}, Data: run.Dataset{Samples: 600}}
	case seq < 3:
		e.Kind, e.Agg, e.Data = event.KindMachine, []string{"a", "b"}[seq-1], machines[0]
	case n < 3:
		e.Kind, e.Agg, e.Data = event.KindMachine, string(m), rapid.SampledFrom(machines).Draw(t, "fact")
	case n < 5:
		e.Agg, e.Data = "r-2", rapid.SampledFrom([]event.Data{&run.LeaseGranted{Slot: slot}, &run.LeaseReleased{Slot: slot}, &run.Completed{}}).Draw(t, "fact")
	case n == 5 && seq > 40:
		e.Data = &run.Cancelled{}
	default:
		e.Data = rapid.SampledFrom(facts).Draw(t, "fact")
	}
	return e
}

// TestAuditCanFail shows that what every report is held against would be noticed.
func TestAuditCanFail(t *testing.T) {
	sound := func() Report {
		w := Row{Slot: "a/0", Seconds: map[Kind]float64{Counted: 5, Idle: 5}, Connected: 10, Goodput: 0.5}
		total := Row{Seconds: map[Kind]float64{Counted: 5, Idle: 5}, Connected: 10, Goodput: 0.5}
		return Report{Slots: []Row{w}, Total: total, Elapsed: 10}
	}
	if err := sound().Audit(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Report){
		"a second twice":      func(r *Report) { r.Slots[0].Seconds[Idle] = 6 },
		"a negative second":   func(r *Report) { r.Slots[0].Seconds[Idle], r.Slots[0].Seconds[Counted] = -1, 11 },
		"longer than the run": func(r *Report) { r.Elapsed = 9 },
		"a goodput above 1":   func(r *Report) { r.Slots[0].Goodput = 1.5 },
		"another total":       func(r *Report) { r.Total.Seconds[Idle], r.Total.Seconds[Counted] = 4, 6 },
		"an unknown kind":     func(r *Report) { r.Slots[0].Seconds["sleeping"] = 0 },
	} {
		r := sound()
		if spoil(&r); r.Audit() == nil {
			t.Errorf("%s is not noticed", name)
		}
	}
}

// Every kind has words, what is lost has advice or none by design, and no two kinds read alike.
func TestKindsHaveWords(t *testing.T) {
	seen := map[string]Kind{}
	s := run.Spec{Chunk: 100, Codec: run.CodecE3M0, Round: run.Round{Chunks: 4}}
	for _, k := range Kinds() {
		if other, twice := seen[k.Words()]; twice || k.Words() == "" {
			t.Errorf("%s and %s read %q", k, other, k.Words())
		}
		seen[k.Words()] = k
		want := k.Lost() && k != HubAway && k != Unheard
		if got := k.Advice(s) != ""; got != want {
			t.Errorf("%s has advice: %v", k, got)
		}
	}
}

// A window leaves out what lies before and behind it.
func TestWindow(t *testing.T) {
	s := newStory(t)
	s.ledger.Within(s.time("10"), s.time("31"))
	for _, line := range [][]string{
		{"0", "online", "a"}, {"0", "submit", "samples=400"}, {"10", "open", "1", "0-1"}, {"10", "grant", "a", "train"}, {"20", "trained", "a", "0", "took=10"}, {"30", "trained", "a", "1", "took=10"},
		{"30", "request", "a"}, {"31", "accept", "a", "0-1"}, {"31", "release", "a"}, {"31", "close", "1"}, {"40", "merge", "1"}, {"50", "complete"},
	} {
		s.tell(line)
	}
	r, err := s.ledger.Report()
	if err != nil {
		t.Fatal(err)
	}
	if w := r.Total; r.Ended || w.Connected != 21 || w.Seconds[Counted] != 20 || w.Seconds[Sending] != 1 || w.Samples != 200 {
		t.Errorf("%+v", r)
	}
}

// An agent whose clock runs fast does not turn all its waiting into training: a chunk's remainder is bounded, exactly.
func TestOwedIsBounded(t *testing.T) {
	for _, c := range []struct{ took, want float64 }{{15, 10 + 5}, {16, 10 + 5}, {12, 10 + 2}} {
		s := newStory(t)
		for _, line := range [][]string{
			{"0", "online", "a"}, {"0", "submit", "samples=400"}, {"0", "open", "1", "0-1"}, {"0", "grant", "a", "train"},
			{"10", "trained", "a", "0", fmt.Sprintf("took=%v", c.took)}, {"20", "trained", "a", "1", "took=0"}, {"20", "accept", "a", "0-1"},
		} {
			s.tell(line)
		}
		r, err := s.ledger.Report()
		if err != nil || r.Total.Seconds[Counted] != c.want {
			t.Errorf("a chunk of %v s in 10 s: %v s counted, want %v (%v)", c.took, r.Total.Seconds[Counted], c.want, err)
		}
	}
}

// What a slot has trained is not kept for ever: two rounds' chunks at most, however long the run.
func TestWorkIsForgotten(t *testing.T) {
	s := newStory(t)
	s.tell([]string{"0", "online", "a"})
	s.tell([]string{"0", "submit", "samples=100000"})
	for r := range 50 {
		n := func(x int) string { return fmt.Sprint(10*r + x) }
		for _, line := range [][]string{
			{n(0), "open", fmt.Sprint(r + 1), n(0) + "-" + n(2)}, {n(0), "grant", "a", "train"}, {n(2), "trained", "a", n(0), "took=2"}, {n(3), "accept", "a", n(0)},
			{n(5), "trained", "a", n(1), "took=2"}, {n(6), "expire", "a"}, {n(7), "close", fmt.Sprint(r + 1)}, {n(8), "merge", fmt.Sprint(r + 1)},
		} {
			s.tell(line)
		}
		if a := s.ledger.accounts["a/0"]; len(a.held)+len(a.late)+len(a.won) > 1 || len(a.pending) > 1 {
			t.Fatalf("after round %d: %d chunks are held, %d late, %d counted, %d stretches wait", r+1, len(a.held), len(a.late), len(a.won), len(a.pending))
		}
	}
}

// A pool at its limit is told of; what a log names beyond it is refused, and machines that are gone do not count.
func TestSlotsAreBounded(t *testing.T) {
	s := newStory(t)
	for m := range domain.MaxMachines + 1 {
		name := fmt.Sprintf("m-%d", m)
		s.tell([]string{"0", "online", name, fmt.Sprintf("slots=%d", domain.MaxSlotsPerMachine)})
		if m == 0 {
			s.tell([]string{"0", "revoked", name})
		}
	}
	s.tell([]string{"1", "submit", "samples=400"})
	s.tell([]string{"2", "pause-run"})
	if r, err := s.ledger.Report(); err != nil || len(r.Unused) != maxSlots {
		t.Fatalf("%d slots, %v", len(r.Unused), err)
	}
	s.tell([]string{"3", "online", "one-more"})
	if _, err := s.ledger.Report(); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("one slot more: %v", err)
	}
}

// What is written for programs has every kind under its name, and lists where nothing is.
func TestJSON(t *testing.T) {
	s := newStory(t)
	for _, line := range [][]string{{"0", "online", "a"}, {"0", "submit", "samples=400"}, {"5", "open", "1", "0-1"}} {
		s.tell(line)
	}
	r, err := s.ledger.Report()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(raw, &back); err != nil || back.Slots == nil || back.Unused[0].Slot != "a/0" || back.Unused[0].Connected != 5 {
		t.Errorf("%v: %s", err, raw)
	}
}
