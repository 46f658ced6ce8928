package run_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// tester is what a test and a property share.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// world is one run with its log: what Decide returns is recorded and folded, and audited after every fact.
type world struct {
	t     tester
	state *run.State
	log   []event.Envelope
	large bool // too large to be audited after every fact
}

// decide puts one command through. Every fact is folded at once, as the hub does.
func (w *world) decide(c run.Command) ([]event.Envelope, error) {
	w.t.Helper()
	facts, err := run.Decide(w.state, c)
	if err != nil && len(facts) > 0 {
		w.t.Fatalf("%T gives facts and the error %v", c, err)
	}
	from := len(w.log)
	for _, f := range facts {
		w.apply(f)
		if err := w.audit(); err != nil {
			w.t.Fatalf("after %T: %s: %v", c, f.Line(), err)
		}
	}
	return w.log[from:], err
}

func (w *world) audit() error {
	if w.large {
		return nil
	}
	return run.Audit(w.state)
}

// apply records and folds one fact without asking anybody.
func (w *world) apply(f event.Data) {
	e := event.Envelope{Seq: uint64(len(w.log) + 1), Kind: event.KindRun, Agg: "r-1", Time: time.Unix(1e9, 0).UTC(), Data: f, Version: 1}
	w.log = append(w.log, e)
	w.state = run.Evolve(w.state, e)
}

// must decides a command that may not be refused.
func (w *world) must(cs ...run.Command) {
	w.t.Helper()
	for _, c := range cs {
		if _, err := w.decide(c); err != nil {
			w.t.Fatalf("%T: %v", c, err)
		}
	}
}

// fold replays the log from nothing.
func (w *world) fold() *run.State {
	var s *run.State
	for _, e := range w.log {
		s = run.Evolve(s, e)
	}
	return s
}

// difference compares two states; empty and missing lists are the same.
func difference(a, b *run.State) string { return cmp.Diff(a, b, cmpopts.EquateEmpty()) }

// digest pads a few hex digits, so that scripts stay readable.
func digest(short string) domain.Digest {
	return domain.Digest(short + strings.Repeat("0", 64-len(short)))
}

func dataset(samples int) run.Dataset {
	return run.Dataset{Blob: digest("da7a"), Samples: samples, Heldout: max(samples/4, 1), Features: 4, Classes: 2, Block: samples}
}

// newWorld submits a run. Zero spec fields take their defaults.
func newWorld(t tester, spec run.Spec, data run.Dataset) *world {
	t.Helper()
	spec, err := run.Resolve(spec, data)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t}
	w.must(run.Submit{Spec: spec, Data: data})
	return w
}

// begin takes the run to its first round, in which the slots hold train leases and nothing else.
func (w *world) begin(slots ...domain.SlotID) {
	w.t.Helper()
	w.must(run.GrantLease{Slot: slots[0], Unit: run.UnitInit})
	w.must(w.initialise(slots[0]), run.OpenRound{})
	for _, s := range slots {
		w.must(run.GrantLease{Slot: s, Unit: run.UnitTrain, Round: 1})
	}
}

func (w *world) initialise(s domain.SlotID) run.Initialise {
	return run.Initialise{Slot: s, Epoch: w.epoch(s), Base: digest("ba5e"), Layout: digest("1a"), Params: 10}
}

// epoch is the slot's present lease, 0 when none.
func (w *world) epoch(s domain.SlotID) domain.Epoch {
	if l := w.state.LeaseOf(s); l != nil {
		return l.Epoch
	}
	return 0
}

// train deals, claims and reports the chunks for the slot.
func (w *world) train(s domain.SlotID, cs ...domain.ChunkID) {
	w.t.Helper()
	w.must(run.AssignShard{Slot: s, Chunks: cs}, run.Claim{Slot: s, Count: len(cs)})
	for _, c := range cs {
		w.must(w.trained(s, c))
	}
}

func (w *world) trained(s domain.SlotID, c domain.ChunkID) run.ReportTrained {
	return run.ReportTrained{Slot: s, Epoch: w.epoch(s), Number: w.state.Number(s), Chunk: c, Steps: 1, Seconds: 1, Loss: 0.5}
}

// offer is the slot's whole contribution, with every boundary held.
func (w *world) offer(s domain.SlotID) run.OfferContribution {
	o := run.OfferContribution{Slot: s, Epoch: w.epoch(s), Number: w.state.Number(s), Steps: 1, Codec: run.CodecE3M0}
	o.Blob = digest(fmt.Sprintf("de%x", len(w.log)))
	if l := w.state.LeaseOf(s); l != nil {
		o.Chunks = append(o.Chunks, l.Trained...)
	}
	for i := range o.Chunks {
		o.Boundaries = append(o.Boundaries, i+1)
	}
	return o
}

// accept is the same offer with a clean inspection.
func (w *world) accept(s domain.SlotID) run.OfferContribution {
	o := w.offer(s)
	o.Inspection = &run.Inspection{Norm: 1}
	return o
}

// merge is the outer step of the open round.
func (w *world) merge() run.RecordMerge {
	n := w.state.Merged + 1
	return run.RecordMerge{Round: n, NextBase: digest(fmt.Sprintf("ba5e%x", n)), NextMomentum: digest(fmt.Sprintf("30%x", n)), StepNorm: 1}
}
