package run_test

import (
	"math"
	"strings"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// What no scenario tells: input that no well-behaved agent or planner sends.
func TestDecideRefuses(t *testing.T) {
	offer := func(edit func(o *run.OfferContribution)) func(w *world) run.Command {
		return func(w *world) run.Command {
			o := w.accept("a/0")
			edit(&o)
			return o
		}
	}
	fixed := func(c run.Command) func(w *world) run.Command { return func(*world) run.Command { return c } }
	tests := []struct {
		name string
		c    func(w *world) run.Command
		kind domain.Kind
		why  string
	}{
		{"offer without steps", offer(func(o *run.OfferContribution) { o.Steps = 0 }), domain.KindInvalid, "0 steps"},
		{"offer in another codec", offer(func(o *run.OfferContribution) { o.Codec = run.CodecFP32 }), domain.KindInvalid, `"fp32", the run's codec is "e3m0"`},
		{"offer without a blob", offer(func(o *run.OfferContribution) { o.Blob = "" }), domain.KindInvalid, "no digest"},
		{"offer with a chunk twice", offer(func(o *run.OfferContribution) { o.Chunks = []domain.ChunkID{0, 0} }), domain.KindInvalid, "chunk 0 stands there twice"},
		{"offer with falling boundaries", offer(func(o *run.OfferContribution) { o.Boundaries = []int{2, 1} }), domain.KindInvalid, "not ascending"},
		{"offer from the future", offer(func(o *run.OfferContribution) { o.Epoch = 1 << 40 }), domain.KindInvalid, "has not been granted"},
		{"offer of too many chunks", offer(func(o *run.OfferContribution) { o.Chunks = make([]domain.ChunkID, run.MaxRoundChunks+1) }), domain.KindInvalid, "allowed are 1 to 32768"},
		{"report without steps", func(w *world) run.Command { c := w.trained("a/0", 2); c.Steps = 0; return c }, domain.KindInvalid, "0 steps"},
		{"report of a loss that is none", func(w *world) run.Command { c := w.trained("a/0", 2); c.Loss = math.NaN(); return c }, domain.KindInvalid, "loss NaN"},
		{"report of a foreign chunk", func(w *world) run.Command { return w.trained("a/0", 9) }, domain.KindConflict, "has not claimed it"},
		{"report of no chunk", func(w *world) run.Command { return w.trained("a/0", -1) }, domain.KindConflict, "has not claimed it"},
		{"initialise after the fact", fixed(run.Initialise{Slot: "a/0", Epoch: 6}), domain.KindConflict, "for train, not for init"},
		{"grant to no slot", fixed(run.GrantLease{Slot: "a", Unit: run.UnitTrain, Round: 1}), domain.KindInvalid, "is not a slot"},
		{"grant to a slot in disguise", fixed(run.GrantLease{Slot: "a/00", Unit: run.UnitTrain, Round: 1}), domain.KindInvalid, "is not a slot"},
		{"grant of no unit", fixed(run.GrantLease{Slot: "c/0", Unit: "rest"}), domain.KindInvalid, "is not a unit"},
		{"grant of another round", fixed(run.GrantLease{Slot: "c/0", Unit: run.UnitTrain, Round: 2}), domain.KindConflict, "round 2 is not open"},
		{"grant of an unwanted evaluation", fixed(run.GrantLease{Slot: "c/0", Unit: run.UnitEvaluate}), domain.KindConflict, "no evaluation of round 0"},
		{"assign without a lease", fixed(run.AssignShard{Slot: "c/0", Chunks: []domain.ChunkID{3}}), domain.KindConflict, "c/0 trains no round"},
		{"assign twice the same", fixed(run.AssignShard{Slot: "a/0", Chunks: []domain.ChunkID{4, 3, 4}}), domain.KindInvalid, "chunk 4 stands there twice"},
		{"assign of no round's chunk", fixed(run.AssignShard{Slot: "a/0", Chunks: []domain.ChunkID{9}}), domain.KindConflict, "chunk 9 is not in the pool"},
		{"steal from oneself", fixed(run.Steal{From: "a/0", To: "a/0", Count: 1}), domain.KindInvalid, "from a/0 to a/0"},
		{"request of nothing", fixed(run.RequestContribution{Slot: "b/0"}), domain.KindConflict, "nothing trained and nothing claimed"},
		{"expiry with silence that is none", fixed(run.ExpireLease{Slot: "a/0", Silent: math.NaN()}), domain.KindInvalid, "NaN seconds"},
		{"close of another round", fixed(run.CloseRound{Round: 2}), domain.KindConflict, "it is not open"},
		{"revocation of what never was", fixed(run.RevokeContribution{Slot: "a/0", Number: 1}), domain.KindNotFound, "no such contribution"},
		{"merge before the close", func(w *world) run.Command { return w.merge() }, domain.KindConflict, "does not wait for a merge"},
		{"merge without a base", func(w *world) run.Command { closeRound(w); c := w.merge(); c.NextBase = ""; return c }, domain.KindInvalid, "is not a digest"},
		{"merge of a step that is none", func(w *world) run.Command { closeRound(w); c := w.merge(); c.StepNorm = math.Inf(1); return c }, domain.KindInvalid, "norm +Inf"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, run.Spec{Batch: 10, Chunk: 10, Epochs: 1, Round: run.Round{Chunks: 5}}, dataset(100))
			w.begin("a/0", "b/0")
			w.train("a/0", 0, 1)
			w.must(run.AssignShard{Slot: "a/0", Chunks: []domain.ChunkID{2}}, run.Claim{Slot: "a/0", Count: 1})
			c := tt.c(w)
			facts, err := w.decide(c)
			if len(facts) > 0 || domain.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.why) {
				t.Errorf("%v, %v (%s), want %q (%s)", facts, err, domain.KindOf(err), tt.why, tt.kind)
			}
		})
	}
}

// closeRound trains and counts all five chunks.
func closeRound(w *world) {
	w.must(w.trained("a/0", 2))
	w.train("b/0", 3, 4)
	w.must(w.accept("a/0"), w.accept("b/0"), run.CloseRound{Round: 1})
}

func TestBadInitialisationIsRefused(t *testing.T) {
	for name, edit := range map[string]func(c *run.Initialise){
		"no base": func(c *run.Initialise) { c.Base = "" }, "no layout": func(c *run.Initialise) { c.Layout = "x" },
		"no parameters": func(c *run.Initialise) { c.Params = 0 }, "more than a blob holds": func(c *run.Initialise) { c.Params = run.MaxParams + 1 },
	} {
		w := newWorld(t, run.Spec{}, dataset(100))
		w.must(run.GrantLease{Slot: "a/0", Unit: run.UnitInit})
		c := w.initialise("a/0")
		edit(&c)
		if _, err := w.decide(c); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The deadline follows from the spec, else from the expected time, else from nothing.
func TestDeadlines(t *testing.T) {
	for _, tt := range []struct{ spec, expected, want float64 }{
		{0, 0, run.DeadlineUnknown}, {0, 1, run.DeadlineLeast}, {0, 100, 400}, {7, 100, 7},
	} {
		w := newWorld(t, run.Spec{Round: run.Round{Deadline: tt.spec}}, dataset(100))
		w.must(run.GrantLease{Slot: "a/0", Unit: run.UnitInit})
		w.must(w.initialise("a/0"), run.OpenRound{Expected: tt.expected})
		if got := w.state.Open.Deadline; got != tt.want {
			t.Errorf("spec %v, expected %v: %v, want %v", tt.spec, tt.expected, got, tt.want)
		}
	}
}

// A log from before deadlines were bounded may hold a round that never ends: it ends as the longest one does.
func TestARecordedDeadlineIsBounded(t *testing.T) {
	w := newWorld(t, run.Spec{}, dataset(100))
	s := run.Evolve(w.state, event.Envelope{Seq: 9, Data: &run.RoundOpened{Round: 1, Chunks: []domain.ChunkID{0}, Deadline: math.Inf(1)}})
	if s.Open.Deadline != run.MaxDeadline {
		t.Errorf("the deadline is %v s", s.Open.Deadline)
	}
}

// B is what the first round recorded, also when that round was shorter than the spec's wish; and the questions that
// planners ask.
func TestQuestions(t *testing.T) {
	w := newWorld(t, run.Spec{Batch: 10, Chunk: 10, Epochs: 1, Round: run.Round{Chunks: 5}, MaxChunksPerContribution: 2}, dataset(95))
	if !w.state.WantsInit() || w.state.WantsRound() || w.state.Number("a/0") != 0 {
		t.Error("a submitted run wants its first base and no round")
	}
	w.begin("a/0", "a/1", "b/0")
	w.train("a/1", 0)
	w.must(run.AssignShard{Slot: "a/1", Chunks: []domain.ChunkID{1, 2}}, run.Claim{Slot: "a/1", Count: 1})
	s := w.state
	if got := s.Held("a/1"); len(got) != 3 || got[0] != 0 || got[1] != 1 || got[2] != 2 {
		t.Errorf("held %v", got)
	}
	if s.RemainingSamples("a/1") != 20 || s.Room("a/1") != 0 || s.Room("b/0") != 2 || s.Room("z/0") != 0 || s.Number("a/1") != 1 {
		t.Errorf("remaining %d, room %d and %d, number %d", s.RemainingSamples("a/1"), s.Room("a/1"), s.Room("b/0"), s.Number("a/1"))
	}
	if got := s.Holding("a"); len(got) != 2 || got[0] != "a/0" || got[1] != "a/1" {
		t.Errorf("machine a holds %v", got)
	}
	if _, ok := s.NeedsMerge(); ok || s.Done() || s.WantsEvaluation() {
		t.Error("an open round needs no merge")
	}
	w.train("b/0", 3, 4)
	w.must(w.accept("b/0"), w.accept("a/1"), run.CloseRound{Round: 1})
	ins, ok := w.state.NeedsMerge()
	if !ok || len(ins) != 2 || ins[0].Slot != "a/1" || ins[1].Slot != "b/0" || ins[0].Samples != 10 || ins[1].Samples != 20 {
		t.Errorf("the merge reads %v", ins)
	}
}
