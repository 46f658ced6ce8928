package sim

import (
	"context"
	"maps"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
)

// past is what the log says, read record by record as it grows, and a book of its own about leases and chunks that no
// code of the product has a part in.
type past struct {
	w        *world
	verifier *event.Verifier
	known    uint64 // records read
	fresh    int    // of them by the newest look
	digests  []domain.Digest

	runs     map[domain.RunID]*run.State // fold of the decoded records
	order    []domain.RunID
	machines map[domain.MachineID]*machine.State
	pool     *pool.State
	causes   map[domain.CommandID]bool

	books map[domain.RunID]*book
	held  map[domain.SlotID]grant
	over  map[domain.Epoch]bool // leases that expired
}

// grant is a lease by the book.
type grant struct {
	run   domain.RunID
	epoch domain.Epoch
	unit  run.Unit
}

// book is the account of one run's chunks.
type book struct {
	spec    run.Spec
	data    run.Dataset
	chunks  chunkBook
	round   int
	base    domain.Digest
	former  domain.Digest          // base before it
	inputs  map[contribution]input // of the open round
	drains  map[contribution]bool  // asked for because the machine leaves
	merges  int
	counted map[domain.Digest]bool // deltas that were accepted, for codecs with feedback
	members map[int]*memberBook    // of an ensemble
}

// contribution names one accepted delta within its run.
type contribution struct {
	round  int
	slot   domain.SlotID
	number int
}

func newPast(w *world) *past {
	return &past{
		w: w, verifier: event.NewVerifier(w.reg), runs: map[domain.RunID]*run.State{}, machines: map[domain.MachineID]*machine.State{},
		causes: map[domain.CommandID]bool{}, books: map[domain.RunID]*book{}, held: map[domain.SlotID]grant{}, over: map[domain.Epoch]bool{},
	}
}

// absorb reads what is new in the log, checks each record against the book, and audits the runs it touched.
func (p *past) absorb() {
	p.fresh = 0
	last, err := p.w.log.Last(context.Background())
	must(err)
	if last < p.known {
		fail("the log ended at %d and ends at %d now", p.known, last)
	}
	touched := map[domain.RunID]bool{}
	for rec, err := range p.w.log.Read(context.Background(), p.known+1) {
		must(err)
		e, err := p.verifier.Next(rec.Seq, rec.Data)
		if err != nil {
			fail("the log's chain is broken: %v", err)
		}
		p.known, p.fresh = rec.Seq, p.fresh+1
		p.digests = append(p.digests, event.Digest(rec.Data))
		p.causes[e.Cause] = true
		p.w.say("log", "%d %s %s %s: %s", e.Seq, e.Agg, e.Actor, e.Data.EventName(), e.Data.Line())
		if bare(rec.Data) {
			fail("record %d holds a secret: %s", rec.Seq, e.Data.Line())
		}
		if e = p.w.bias.event(e); e.Data == nil {
			continue
		}
		p.note(e)
		p.fold(e)
		if e.Kind == event.KindRun {
			touched[domain.RunID(e.Agg)] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(touched)) {
		if err := run.Audit(p.runs[id]); err != nil {
			fail("audit: %v", err)
		}
	}
}

// fold obeys an event.
func (p *past) fold(e event.Envelope) {
	switch e.Kind {
	case event.KindRun:
		id := domain.RunID(e.Agg)
		if p.runs[id] == nil {
			p.order = append(p.order, id)
		}
		p.runs[id] = run.Evolve(p.runs[id], e)
	case event.KindMachine:
		id := domain.MachineID(e.Agg)
		p.machines[id] = machine.Evolve(p.machines[id], e)
	case event.KindPool:
		p.pool = pool.Evolve(p.pool, e)
	}
}

// leases counts the leases that are held.
func (p *past) leases() int { return len(p.held) }

// ended reports whether every run of the options is in the log and has ended.
func (p *past) ended() bool {
	for _, r := range p.w.opt.Runs {
		if s := p.runs[r.ID]; s == nil || !s.Phase.Ended() {
			return false
		}
	}
	return true
}

// note checks one event against the book and writes it there. It runs before the fold, so that the states are those
// in which the event was decided.
func (p *past) note(e event.Envelope) {
	if _, ok := e.Data.(*machine.BecameQuarantined); ok {
		p.w.mark(markQuarantine)
	}
	if e.Kind != event.KindRun {
		return
	}
	id := domain.RunID(e.Agg)
	if d, ok := e.Data.(*run.Submitted); ok && p.books[id] == nil {
		p.books[id] = &book{spec: d.Spec, data: d.Data, chunks: newChunkBook(p.w, id), inputs: map[contribution]input{}, drains: map[contribution]bool{}, members: map[int]*memberBook{}}
		return
	}
	if s := p.runs[id]; s.Phase.Ended() {
		fail("run %s has ended (%s) and goes on with %s", id, s.Phase, e.Data.EventName())
	}
	p.noteLease(id, e)
	p.noteRound(id, e)
	p.noteContribution(id, e)
	p.noteMember(id, e)
}

// noteLease keeps the book of leases: one for a slot at a time over all runs, and every end names the one that is held.
func (p *past) noteLease(id domain.RunID, e event.Envelope) {
	end := func(slot domain.SlotID, epoch domain.Epoch) {
		if g := p.held[slot]; g.run != id || g.epoch != epoch {
			fail("record %d ends lease %d of %s in run %s, the book says %+v", e.Seq, epoch, slot, id, g)
		}
		delete(p.held, slot)
		p.books[id].chunks.end(epoch)
	}
	switch d := e.Data.(type) {
	case *run.LeaseGranted:
		if g, taken := p.held[d.Slot]; taken {
			fail("record %d grants %s a lease of %s while it holds %+v", e.Seq, d.Slot, id, g)
		}
		if m := p.machines[d.Slot.Machine()]; m == nil || !m.Usable() || d.Slot.Index() >= m.Slots {
			fail("record %d grants a lease to %s, whose machine is %+v", e.Seq, d.Slot, m)
		}
		p.held[d.Slot] = grant{id, domain.Epoch(e.Seq), d.Unit}
	case *run.LeaseReleased:
		end(d.Slot, d.Epoch)
	case *run.LeaseExpired:
		end(d.Slot, d.Epoch)
		p.over[d.Epoch] = true
		if len(d.Requeued) > 0 {
			p.w.mark(markRequeue)
		}
	case *run.TaskFailed:
		end(d.Slot, d.Epoch)
		p.w.mark(markTaskFailed)
	case *run.EvaluationFailed:
		end(d.Slot, d.Epoch)
	case *run.Cancelled, *run.Failed, *run.Completed:
		for slot, g := range p.held {
			if g.run == id {
				fail("run %s ends and %s holds lease %d of it", id, slot, g.epoch)
			}
		}
	}
}

// current fails when an agent's fact does not stand under the lease that its slot holds.
func (p *past) current(id domain.RunID, e event.Envelope, slot domain.SlotID, epoch domain.Epoch, unit run.Unit) {
	if g := p.held[slot]; g.run != id || g.epoch != epoch || g.unit != unit {
		fail("record %d (%s) counts for epoch %d of %s in run %s; the slot holds %+v", e.Seq, e.Data.EventName(), epoch, slot, id, g)
	}
}

// noteRound keeps the book of rounds and models.
func (p *past) noteRound(id domain.RunID, e event.Envelope) {
	b := p.books[id]
	switch d := e.Data.(type) {
	case *run.Initialised:
		p.current(id, e, d.Slot, d.Epoch, run.UnitInit)
		b.base = d.Base
	case *run.Evaluated:
		p.current(id, e, d.Slot, d.Epoch, run.UnitEvaluate)
	case *run.RoundOpened:
		if d.Round != b.merges+1 || d.Base != b.base {
			fail("record %d opens round %d of %s on %s after %d merges on %s", e.Seq, d.Round, id, d.Base.Short(), b.merges, b.base.Short())
		}
		b.round = d.Round
		clear(b.inputs)
	case *run.RoundClosed:
		if d.Reason == "deadline" && len(d.Missing) > 0 {
			p.w.mark(markDeadlineClose)
		}
	case *run.RoundExtended:
		p.w.mark(markExtended)
	case *run.Paused:
		if d.Gate {
			p.w.mark(markGatePause)
		}
	case *run.RoundMerged:
		p.noteMerge(id, e, d)
	case *run.Completed:
		p.noteEnd(id, e, d)
	}
}

func (p *past) noteMerge(id domain.RunID, e event.Envelope, d *run.RoundMerged) {
	b := p.books[id]
	if d.Round != b.round || d.Base != b.base || len(d.Inputs) != len(b.inputs) {
		fail("record %d merges round %d of %s with %d inputs, the book has round %d with %d", e.Seq, d.Round, id, len(d.Inputs), b.round, len(b.inputs))
	}
	for _, in := range d.Inputs {
		if b.inputs[contribution{d.Round, in.Slot, in.Number}] != (input{in.Blob, in.Base}) {
			fail("record %d merges %s number %d of %s, which the book does not have", e.Seq, in.Slot, in.Number, id)
		}
		p.w.keep(in.Blob)
	}
	for _, o := range []domain.Digest{d.Residual, d.NextResidual, d.Increment} {
		if o != "" {
			p.w.keep(o)
		}
	}
	if len(d.Inputs) > 0 && d.Momentum != "" {
		p.w.keep(d.Momentum)
	}
	p.w.keep(d.Base)
	p.w.keep(d.NextBase)
	if w, err := p.w.model(d.NextBase); err != nil || !w.finite() {
		fail("record %d makes %s the model of %s: %v, finite %v", e.Seq, d.NextBase.Short(), id, err, w.finite())
	}
	if d.NextBase != b.base {
		b.former = b.base
	}
	b.base, b.merges = d.NextBase, d.Round
}

// noteEnd: every chunk is counted once.
func (p *past) noteEnd(id domain.RunID, e event.Envelope, d *run.Completed) {
	b := p.books[id]
	if b.spec.IsEnsemble() {
		p.noteEnsembleEnd(id, e, d)
		return
	}
	if n := run.TotalChunks(b.spec, b.data); len(b.chunks.counted) != n {
		fail("record %d completes %s with %d of %d chunks counted", e.Seq, id, len(b.chunks.counted), n)
	}
	if d.Samples != int64(b.spec.Epochs*b.data.Samples) || d.Model != b.base {
		fail("record %d completes %s with %d samples and model %s; %d and %s are right", e.Seq, id, d.Samples, d.Model.Short(),
			b.spec.Epochs*b.data.Samples, b.base.Short())
	}
}
