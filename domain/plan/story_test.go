package plan_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/plan"
	"tensorturn/domain/run"
)

// tester is what testing.T and rapid.T have in common.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// story drives plan and run together: what plan proposes is decided by run.Decide and applied by run.Evolve, as the hub
// does it, without a hub, a log or time.
type story struct {
	t     tester
	slots []plan.Slot
	runs  []*run.State
	ages  map[domain.RunID]float64
	lease time.Duration
	seq   uint64
	facts []event.Data // all decided, in order
}

func newStory(t tester, lease time.Duration) *story {
	return &story{t: t, lease: lease, ages: map[domain.RunID]float64{}}
}

// digest makes a digest out of a word.
func digest(word string) domain.Digest { return event.Digest([]byte(word)) }

func (s *story) run(id domain.RunID) *run.State {
	for _, r := range s.runs {
		if r.ID == id {
			return r
		}
	}
	s.t.Fatalf("no run %s", id)
	return nil
}

func (s *story) slot(id domain.SlotID) *plan.Slot {
	i, ok := slices.BinarySearchFunc(s.slots, id, func(p plan.Slot, id domain.SlotID) int { return strings.Compare(string(p.ID), string(id)) })
	if !ok {
		s.slots = slices.Insert(s.slots, i, plan.Slot{ID: id, Usable: true})
	}
	return &s.slots[i]
}

// do decides and applies one command and gives the facts.
func (s *story) do(id domain.RunID, c run.Command) ([]event.Data, error) {
	var r *run.State
	if _, fresh := c.(run.Submit); !fresh {
		r = s.run(id)
	}
	ds, err := run.Decide(r, c)
	if err != nil {
		return nil, err
	}
	for _, d := range ds {
		s.seq++
		_, fresh := d.(*run.Submitted)
		r = run.Evolve(r, event.Envelope{Seq: s.seq, Agg: string(id), Data: d})
		if fresh {
			s.runs = append(s.runs, r)
		}
		if _, opened := d.(*run.RoundOpened); opened {
			s.ages[id] = 0
		}
	}
	s.facts = append(s.facts, ds...)
	return ds, nil
}

// submit begins a run of samples samples in chunks of chunk, round chunks a round, and gives it its base when based.
func (s *story) submit(id domain.RunID, samples, chunk, round, epochs, most int, deadline float64, every int) {
	data := run.Dataset{Blob: digest("data"), Samples: samples, Heldout: 10, Features: 4, Classes: 2, Block: 1024}
	spec, err := run.Resolve(run.Spec{Name: string(id), Batch: chunk, Chunk: chunk, Epochs: epochs, MaxChunksPerContribution: most, EvaluateEvery: every,
		Round: run.Round{Chunks: round, Deadline: deadline}}, data)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.do(id, run.Submit{Spec: spec, Data: data}); err != nil {
		s.t.Fatal(err)
	}
}

// snapshot is what the hub would show to plan now.
func (s *story) snapshot() plan.Snapshot {
	for i := range s.slots {
		p := &s.slots[i]
		p.Free = !slices.ContainsFunc(s.runs, func(r *run.State) bool { return r.Leases[p.ID] != nil })
	}
	return plan.Snapshot{Slots: slices.Clone(s.slots), Runs: slices.Clone(s.runs), Timing: domain.TimingOf(s.lease), RoundAge: s.ages}
}

// maxCalls is how many calls of Next may settle a snapshot, the last of which proposes nothing.
const maxCalls = 6

// settle applies what plan proposes until it proposes nothing, and gives each action with the facts it led to. It fails
// the test when an action is refused or changes nothing, or when plan does not come to rest.
func (s *story) settle() []string {
	var lines []string
	for range maxCalls {
		actions := plan.Next(s.snapshot())
		if all := plan.NextOfAll(s.snapshot()); !reflect.DeepEqual(all, actions) {
			s.t.Fatalf("a run that was left out may act:\n%#v\nwithout leaving any out\n%#v", actions, all)
		}
		if len(actions) == 0 {
			s.check()
			return lines
		}
		for _, a := range actions {
			ds, err := s.do(a.Run, a.Command)
			if err != nil {
				s.t.Fatalf("%s: run.Decide refuses %#v: %v", a.Run, a.Command, err)
			}
			if len(ds) == 0 {
				s.t.Fatalf("%s: %#v changes nothing", a.Run, a.Command)
			}
			for _, d := range ds {
				lines = append(lines, fmt.Sprintf("%s  %s", a.Run, told(d)))
			}
		}
	}
	s.t.Fatalf("plan does not come to rest after %d calls:\n%s", maxCalls, strings.Join(lines, "\n"))
	return nil
}

// check holds what must be true of any plan: no slot works for two runs.
func (s *story) check() {
	seen := map[domain.SlotID]domain.RunID{}
	for _, r := range s.runs {
		for _, slot := range r.Slots() {
			if other, ok := seen[slot]; ok {
				s.t.Fatalf("%s works for %s and %s", slot, other, r.ID)
			}
			seen[slot] = r.ID
		}
	}
}

// initialise gives the run the base that its init unit makes.
func (s *story) initialise(id domain.RunID) {
	l := s.run(id).LeaseFor(run.UnitInit)
	if l == nil {
		s.t.Fatalf("%s: nobody makes the first base", id)
	}
	s.must(id, run.Initialise{Slot: l.Slot, Epoch: l.Epoch, Base: digest("base"), Layout: digest("layout"), Params: 100})
}

// trained reports the first n claimed chunks of the slot.
func (s *story) trained(id domain.RunID, slot domain.SlotID, n int) {
	for range n {
		r := s.run(id)
		l := r.TrainLease(slot)
		if l == nil || len(l.Claimed) == 0 {
			s.t.Fatalf("%s has claimed nothing more", slot)
		}
		s.must(id, run.ReportTrained{Slot: slot, Epoch: l.Epoch, Number: r.Number(slot), Chunk: l.Claimed[0], Steps: 1, Seconds: 1, Loss: 1})
	}
}

// contribute offers what the slot has trained and has it accepted.
func (s *story) contribute(id domain.RunID, slot domain.SlotID) {
	r := s.run(id)
	l := r.TrainLease(slot)
	if l == nil {
		s.t.Fatalf("%s holds no train lease", slot)
	}
	s.must(id, run.OfferContribution{Slot: slot, Epoch: l.Epoch, Number: r.Number(slot), Chunks: slices.Clone(l.Trained), Steps: len(l.Trained),
		Blob: digest(fmt.Sprint(slot, l.Epoch, r.Number(slot))), Codec: r.Spec.Codec, Inspection: &run.Inspection{Norm: 1}})
}

// merge ends the closed round.
func (s *story) merge(id domain.RunID) {
	n := s.run(id).Open.Number
	s.must(id, run.RecordMerge{Round: n, NextBase: digest(fmt.Sprint("base", n)), NextMomentum: digest(fmt.Sprint("momentum", n)), StepNorm: 1})
}

// evaluated reports the measurement under way.
func (s *story) evaluated(id domain.RunID) {
	l := s.run(id).LeaseFor(run.UnitEvaluate)
	if l == nil {
		s.t.Fatalf("%s: nobody evaluates", id)
	}
	s.must(id, run.RecordEvaluation{Slot: l.Slot, Epoch: l.Epoch, Samples: 10, Accuracy: 0.5, Loss: 1})
}

func (s *story) must(id domain.RunID, c run.Command) {
	s.t.Helper()
	if ds, err := s.do(id, c); err != nil || len(ds) == 0 {
		s.t.Fatalf("%s: %#v gives %d facts, %v", id, c, len(ds), err)
	}
}
