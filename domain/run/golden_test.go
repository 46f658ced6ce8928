package run_test

import (
	"reflect"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/event/eventtest"
	"tensorturn/domain/run"
)

func registry() *event.Registry {
	r := event.NewRegistry()
	run.Register(r)
	return r
}

// Every fact has one sample, written once and never edited.
func TestGoldenEvents(t *testing.T) {
	eventtest.Golden(t, registry(), "testdata/events")
}

// Every registered fact is known to Evolve, and every command to Decide: both panic on what they do not know.
func TestEveryFactEvolves(t *testing.T) {
	r := registry()
	for _, name := range r.Names() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, run.Spec{Batch: 10, Chunk: 10, Epochs: 1, Round: run.Round{Chunks: 4}}, dataset(60))
			w.begin("a/0")
			d, err := r.New(name, 1)
			if err != nil {
				t.Fatal(err)
			}
			if name == run.NameRoundOpened { // an open round is what its zero value cannot say
				w.must(run.ReleaseLease{Slot: "a/0"})
			}
			w.apply(d)
		})
	}
}

func TestUnknownFactPanics(t *testing.T) {
	for name, s := range map[string]*run.State{"at the beginning": nil, "later": {}} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("an unknown fact was folded without a word")
				}
			}()
			run.Evolve(s, event.Envelope{Data: foreign{}})
		})
	}
}

// foreign is a fact of some other aggregate.
type foreign struct{}

func (foreign) EventName() string { return "lamp.lit" }
func (foreign) Line() string      { return "lit" }

// commands lists one of each.
func commands() []run.Command {
	return []run.Command{run.Submit{}, run.Pause{}, run.Resume{}, run.Cancel{}, run.GrantLease{}, run.ReleaseLease{}, run.ExpireLease{},
		run.OpenRound{}, run.AssignShard{}, run.ReturnShard{}, run.Steal{}, run.Claim{}, run.RequestContribution{}, run.ExtendRound{},
		run.CloseRound{}, run.Initialise{}, run.ReportTrained{}, run.OfferContribution{}, run.RevokeContribution{}, run.RecordMerge{},
		run.RecordEvaluation{}, run.FailTask{}, run.RecordCheckpoint{}, run.RecordMember{}, run.RecordOutputs{}, run.DropMember{}, run.MuteMember{}, run.RecordVote{}}
}

// An empty command is refused or does nothing, with an error of a kind; none panics, on no run and on a live one.
func TestEmptyCommandsAreRefused(t *testing.T) {
	w := newWorld(t, run.Spec{}, dataset(100))
	for _, c := range commands() {
		t.Run(reflect.TypeOf(c).Name(), func(t *testing.T) {
			facts, err := run.Decide(nil, c)
			if k := domain.KindOf(err); len(facts) > 0 || k != domain.KindNotFound && k != domain.KindInvalid {
				t.Errorf("without a run: %v, %v", facts, err)
			}
			if _, err := run.Decide(w.state, c); domain.KindOf(err) == domain.KindInternal {
				t.Errorf("%v has no kind", err)
			}
		})
	}
}
