package sim

import (
	"context"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// planted is a defect of the product: rules, a merge or a store that are wrong in one way. It stands here, outside of the
// product, and reaches it through hub.Config.Decide, the merge worker and the store, which the simulator owns anyway. The
// simulator must find each of them, and say which invariant it breaks.
type planted struct {
	name   string
	what   string // one sentence: the mistake
	wrong  wrong  // a defect of the simulator's own, when the product has no seam for it
	decide func() decider
	merge  func([]run.MergeInput) []run.MergeInput
	crash  func(*world)
}

// decider is run.Decide or something like it. Each hub process has its own.
type decider func(*run.State, run.Command) ([]event.Data, error)

// plants lists the ten bugs that a system of this kind is most likely to have.
func plants() []planted {
	return []planted{
		{name: "no fence", what: "a delta of an ended lease counts under the slot's present one", decide: noFence},
		{name: "double count", what: "a contribution that overlaps a counted one is counted whole", decide: doubleCount},
		{name: "lost requeue", what: "the last chunk of an expired lease does not go back", decide: lostRequeue},
		{name: "skipped sync", what: "the log acknowledges a record before it is on disk, and the process dies", crash: skippedSync},
		{name: "ignored epoch", what: "a delta counts although its lease has ended", decide: ignoredEpoch},
		{name: "stale base accepted", what: "a delta made from another base passes the gate", decide: staleBase},
		{name: "map order in merge", what: "the inputs of a merge are added in another order than the log says", merge: mapOrder},
		{name: "claim after steal", what: "a slot claims a chunk that was stolen from it", decide: claimAfterSteal},
		{name: "snapshot off by one", what: "a snapshot says that it was made one record later than it was", wrong: wrongFrozen},
		{name: "late delta twice", what: "late work is adopted again after it was counted", decide: lateTwice},
	}
}

// counted is the fact of an offer taken as it is.
func counted(s *run.State, o run.OfferContribution, epoch domain.Epoch) []event.Data {
	return []event.Data{&run.ContributionAccepted{Slot: o.Slot, Epoch: epoch, Number: s.Number(o.Slot), Chunks: slices.Clone(o.Chunks),
		Samples: s.Samples(o.Chunks), Steps: o.Steps, Blob: o.Blob, Codec: o.Codec, Norm: 1}}
}

// open reports whether the run has a round that takes work.
func open(s *run.State) bool { return s != nil && s.Open != nil && !s.Open.Closed }

func noFence() decider {
	return func(s *run.State, c run.Command) ([]event.Data, error) {
		if o, ok := c.(run.OfferContribution); ok && open(s) {
			if l := s.TrainLease(o.Slot); l != nil && o.Epoch < l.Epoch {
				return counted(s, o, l.Epoch), nil
			}
		}
		return run.Decide(s, c)
	}
}

func ignoredEpoch() decider {
	return func(s *run.State, c run.Command) ([]event.Data, error) {
		if o, ok := c.(run.OfferContribution); ok && open(s) && s.LeaseOf(o.Slot) == nil {
			return counted(s, o, o.Epoch), nil
		}
		return run.Decide(s, c)
	}
}

func doubleCount() decider {
	return func(s *run.State, c run.Command) ([]event.Data, error) {
		ds, err := run.Decide(s, c)
		o, ok := c.(run.OfferContribution)
		if !ok || err != nil || len(ds) == 0 || s.LeaseOf(o.Slot) == nil {
			return ds, err
		}
		if _, cut := ds[0].(*run.ContributionCut); !cut {
			return ds, err
		}
		if o.Inspection == nil {
			return nil, nil // worth reading
		}
		return counted(s, o, o.Epoch), nil
	}
}

func lostRequeue() decider {
	return func(s *run.State, c run.Command) ([]event.Data, error) {
		ds, err := run.Decide(s, c)
		for _, d := range ds {
			if e, ok := d.(*run.LeaseExpired); ok && len(e.Requeued) > 0 {
				e.Requeued = e.Requeued[:len(e.Requeued)-1]
			}
		}
		return ds, err
	}
}

// skippedSync lets the newest records vanish with the process.
func skippedSync(w *world) {
	w.store.calm++
	defer func() { w.store.calm-- }()
	last, err := w.log.Last(context.Background())
	must(err)
	if last > 1 {
		w.log.Cut(last - 1)
	}
}

func staleBase() decider {
	return func(s *run.State, c run.Command) ([]event.Data, error) {
		if o, ok := c.(run.OfferContribution); ok && o.Inspection != nil && o.Inspection.Why == run.RefusedBase {
			found := *o.Inspection
			found.Why, found.Norm = "", 1
			o.Inspection = &found
			c = o
		}
		return run.Decide(s, c)
	}
}

func mapOrder(in []run.MergeInput) []run.MergeInput {
	out := slices.Clone(in)
	slices.Reverse(out)
	return out
}

// place is a slot within a run.
type place struct {
	run  domain.RunID
	slot domain.SlotID
}

func claimAfterSteal() decider {
	stolen := map[place][]domain.ChunkID{}
	return func(s *run.State, c run.Command) ([]event.Data, error) {
		ds, err := run.Decide(s, c)
		for _, d := range ds {
			switch d := d.(type) {
			case *run.ChunksStolen:
				stolen[place{s.ID, d.From}] = slices.Clone(d.Chunks)
			case *run.ChunksClaimed:
				k := place{s.ID, d.Slot}
				if lost := stolen[k]; len(lost) > 0 && s.Chunks[lost[0]].Status <= run.StatusTrained {
					d.Chunks = append(d.Chunks, lost[0])
				}
				delete(stolen, k)
			}
		}
		return ds, err
	}
}

func lateTwice() decider {
	before := map[place]*run.DeltaAdopted{}
	return func(s *run.State, c run.Command) ([]event.Data, error) {
		ds, err := run.Decide(s, c)
		for i, d := range ds {
			switch d := d.(type) {
			case *run.DeltaAdopted:
				before[place{s.ID, d.Slot}] = d
			case *run.ChunksClaimed:
				k := place{s.ID, d.Slot}
				if first := before[k]; first != nil && first.Epoch < d.Epoch {
					again := *first
					again.Epoch, again.Number = d.Epoch, s.Number(d.Slot)
					ds[i] = &again
				}
			}
		}
		return ds, err
	}
}
