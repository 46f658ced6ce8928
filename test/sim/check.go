package sim

import (
	"context"
	"maps"
	"reflect"
	"slices"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tensorturn/broker/hub"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
	"tensorturn/projections/replay"
)

// compareEvery is how many steps that wrote something lie between two comparisons of the live state with the log's.
const compareEvery = 12

// check looks at the log after a step of the hub, and compares the fold now and then; full compares it surely and reads
// every record again.
func (w *world) check(full bool) {
	w.store.calm++
	defer func() { w.store.calm-- }()
	w.past.absorb()
	if w.past.fresh > 0 {
		w.writes++
	}
	if s := w.hub.core.Stats(); s.PlanRefused+s.PlanEndless > 0 {
		fail("the planner proposed what was refused, or without end: %+v", s)
	}
	if w.hub.core.Stale() != nil {
		return
	}
	if full {
		w.unchanged()
	}
	if full || w.past.fresh > 0 && w.writes%compareEvery == 0 {
		w.compare("the hub", w.hub.core)
	}
}

// compare holds what a hub has in memory against the fold of the log.
func (w *world) compare(who string, core *hub.Core) {
	if got, want := core.Runs(), w.past.order; !slices.Equal(got, want) {
		fail("%s has the runs %v, the log %v", who, got, want)
	}
	for _, id := range w.past.order {
		differ(who, "run "+string(id), w.past.runs[id], core.Run(id))
	}
	if len(core.Machines()) != len(w.past.machines) {
		fail("%s has the machines %v, the log %d", who, core.Machines(), len(w.past.machines))
	}
	for _, id := range core.Machines() {
		m, _ := core.Machine(id)
		differ(who, "machine "+string(id), w.past.machines[id], &m)
	}
}

func differ(who, what string, want, got any) {
	if reflect.DeepEqual(want, got) {
		return
	}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		fail("%s of %s is not the fold of the log (-log +%s):\n%s", what, who, who, d)
	}
}

// rebuild starts a second hub on the log, which must come to the same state.
func (w *world) rebuild() {
	second := hub.New(hub.Config{Timing: w.opt.Timing, Process: "second"}, w.log, w.reg)
	must(second.Open(context.Background(), w.wall()))
	w.compare("a hub made anew", second)
}

// unchanged reads every record again: the log only grows.
func (w *world) unchanged() {
	n := 0
	for rec, err := range w.log.Read(context.Background(), 1) {
		must(err)
		if event.Digest(rec.Data) != w.past.digests[n] {
			fail("record %d of the log has changed", rec.Seq)
		}
		n++
	}
	if n != len(w.past.digests) {
		fail("the log has %d records, it had %d", n, len(w.past.digests))
	}
}

// provenance checks an accepted delta against what its agent has really done: it was made under this epoch and number,
// from these chunks in this order, and its bytes are what that work gives.
func (w *world) provenance(id domain.RunID, e event.Envelope, d *run.ContributionAccepted) {
	list := w.made[work{id, d.Slot, d.Epoch, d.Number}]
	i := slices.IndexFunc(list, func(m product) bool { return m.blob == d.Blob && slices.Equal(m.chunks, d.Chunks) })
	if i < 0 || list[i].poison != "" && list[i].poison != poisonNorm {
		fail("record %d counts delta %s of %s for chunks %v under epoch %d, number %d; the agent has made %+v", e.Seq, d.Blob.Short(), d.Slot,
			d.Chunks, d.Epoch, d.Number, list)
	}
	if list[i].poison == poisonNorm {
		return
	}
	b := w.past.books[id]
	from := b.base
	if d.Base != "" {
		from = d.Base
	}
	base, err := w.model(from)
	if err != nil {
		fail("record %d counts a delta on base %s, which cannot be read: %v", e.Seq, from.Short(), err)
	}
	local := base
	for _, c := range d.Chunks {
		local = local.train(b.spec.Seed, c)
	}
	data := []byte(nil)
	if b.spec.Codec.Feedback() {
		if f := list[i].fed; f != "" && !b.counted[f] || list[i].samples != d.Samples {
			fail("record %d counts delta %s of %s, which holds what %s has lost, a delta that was never counted, or not %d samples", e.Seq, d.Blob.Short(), d.Slot, f.Short(), d.Samples)
		}
		data, _ = encodeLossy(b.spec.Codec, base, local, from, list[i].before, d.Samples)
	} else {
		data = encodeDelta(b.spec.Codec, base, local, from)
	}
	if want, _ := packBlob(data); want != d.Blob {
		fail("record %d counts delta %s of %s for chunks %v; training them gives %s", e.Seq, d.Blob.Short(), d.Slot, d.Chunks, want.Short())
	}
}

// finish checks what must hold when everything has ended.
func (w *world) finish() {
	w.store.calm++
	defer func() { w.store.calm-- }()
	w.check(true)
	w.rebuild()
	w.frozenViews()
	w.seconds()
	if n := w.past.leases(); n > 0 {
		fail("every run has ended and %d leases are held: %v", n, w.past.held)
	}
	for _, r := range w.opt.Runs {
		w.replay(r)
	}
	for _, id := range slices.Sorted(maps.Keys(w.acked)) {
		if w.acked[id] && !w.past.causes[id] {
			fail("command %s was answered and is not in the log", id)
		}
	}
	for _, m := range w.machines {
		m.atRest()
	}
	w.noOrphans()
}

// replay reads the whole log again for one run and recomputes its merges bit for bit.
func (w *world) replay(r runOptions) {
	l := replay.New(w.reg, r.ID)
	for rec, err := range w.log.Read(context.Background(), 1) {
		must(err)
		if err := l.Add(rec.Seq, rec.Data); err != nil {
			fail("replay of %s: %v", r.ID, err)
		}
	}
	got, err := l.Verify(context.Background(), w.blobs.Get, noScratch{}, nil)
	if err != nil {
		fail("replay of %s: %v", r.ID, err)
	}
	nothing := got.Phase == run.PhaseFailed || got.Phase == run.PhaseCancelled // its deltas need not be kept
	if !nothing && (got.Verdict != "bit-exact" || got.Recomputed != got.Rounds) {
		fail("replay of %s recomputes %d of %d rounds: %s", r.ID, got.Recomputed, got.Rounds, got.Verdict)
	}
	switch got.Phase {
	case run.PhaseCompleted:
		if got.Counted != got.Expected {
			fail("run %s is completed with %d of %d samples", r.ID, got.Counted, got.Expected)
		}
	case run.PhaseFailed:
		if w.injected[faultTask] < run.MaxTaskFailures && !mayFail(r.Spec) {
			fail("run %s failed although %d task errors happened: %s", r.ID, w.injected[faultTask], l.State().Reason)
		}
	case run.PhaseCancelled:
		if w.injected[faultCancel] == 0 {
			fail("run %s is cancelled and nobody cancelled it", r.ID)
		}
	}
	w.keepsAll(r.ID, l.State())
}

// keepsAll: nothing in a quiet world is lost, refused or suspected.
func (w *world) keepsAll(id domain.RunID, s *run.State) {
	if len(w.opt.Faults) > 0 || w.opt.Net.Loss+w.opt.Net.Twice+w.opt.Net.Late+w.opt.Between > 0 {
		return
	}
	if s.Phase != run.PhaseCompleted || len(w.past.over) > 0 || w.hub.core.Stats() != (hub.Stats{}) {
		fail("in a world without faults run %s is %s, %d leases expired, %+v", id, s.Phase, len(w.past.over), w.hub.core.Stats())
	}
	for m, st := range w.past.machines {
		if !st.Usable() {
			fail("in a world without faults machine %s is %+v", m, st)
		}
	}
}

// noScratch keeps nothing: every object must be in the store.
type noScratch struct{}

func (noScratch) Put(context.Context, domain.Digest, []byte) error { return nil }
func (noScratch) Forget()                                          {}
func (noScratch) Get(_ context.Context, d domain.Digest) ([]byte, error) {
	return nil, domain.NotFound("get scratch "+d.Short(), "nothing is kept", "")
}
