package hub

import (
	"slices"
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/domain/redact"
	"tensorturn/domain/run"
)

// report hears one slot. Only what is said under the lease's present epoch counts; an offer under an old one is
// refused as fenced, everything else of it is ignored and the desired state says what to hold instead.
func (b *batch) report(m domain.MachineID, r wire.SlotReport) {
	slot := domain.Slot(m, r.Index)
	if r.Late != nil {
		b.late(slot, r)
	}
	s := b.c.fold.runs[r.Run]
	if s == nil || s.Phase.Ended() {
		return
	}
	l := s.Leases[slot]
	if l == nil || l.Epoch != r.Epoch {
		if b.late(slot, r) {
			return
		}
		if known := b.c.fold.decided[slot]; r.Offer != nil && (known.Epoch != r.Epoch || known.Number < r.Number) {
			_, err := b.run(s.ID, offerCommand(slot, r.Epoch, r.Number, *r.Offer))
			b.expected(err)
		}
		return
	}
	b.c.mem.slot(slot, b.now).hear(s.ID, r, b.now)
	switch {
	case r.Error != "" && r.Away != nil && r.Away.Cause == machine.ByAbsence:
		b.expire(s.ID, l, "its GPU is gone") // no fault of the run's
	case r.Error != "":
		_, err := b.run(s.ID, run.FailTask{Slot: slot, Epoch: r.Epoch, Error: told(r.Error), Tail: toldAll(r.Tail)})
		b.refused(err)
		if err == nil && l.Unit == run.UnitTrain {
			b.late(slot, r) // what was trained before the trainer failed lies in snapshots of the agent
		}
	case l.Unit == run.UnitInit && r.Init != nil && r.Init.Base != "":
		_, err := b.run(s.ID, run.Initialise{Slot: slot, Epoch: r.Epoch, Base: r.Init.Base, Layout: r.Init.Layout, Params: r.Init.Params, Take: b.possible(m, r.Index, r.Init.Take)})
		b.refused(err)
	case l.Unit == run.UnitEvaluate && r.Eval != nil:
		_, err := b.run(s.ID, run.RecordEvaluation{Slot: slot, Epoch: r.Epoch, Samples: r.Eval.Samples, Accuracy: r.Eval.Accuracy, Loss: r.Eval.Loss, R2: r.Eval.R2, MAE: r.Eval.MAE})
		b.refused(err)
	case l.Unit == run.UnitTrain:
		b.trainReport(s, l, r)
	case l.Unit == run.UnitMember && r.Member != nil:
		b.memberReport(s, l, *r.Member)
	}
}

// told is a machine's own words as they may be recorded: an agent takes out what is secret before it speaks, and the hub does not
// rely on it.
func told(words string) string { return domain.Clip(redact.Text(words), domain.MaxReasonLength) }

func toldAll(lines []string) []string {
	var out []string
	for _, l := range lines {
		out = append(out, redact.Text(l))
	}
	return out
}

// trainReport takes over the chunks trained since the last report, then the offer. A report of an earlier contribution
// was overtaken by the hub's word on it.
func (b *batch) trainReport(s *run.State, l *run.Lease, r wire.SlotReport) {
	if r.Number != s.Number(l.Slot) {
		return
	}
	for _, t := range r.Trained {
		if !slices.Contains(l.Claimed, t.Chunk) {
			continue // known already, or not this lease's: an offer that names it will be cut
		}
		_, err := b.run(s.ID, run.ReportTrained{Slot: l.Slot, Epoch: l.Epoch, Number: r.Number, Chunk: t.Chunk, Steps: t.Steps, Seconds: t.Seconds, Loss: t.Loss})
		b.refused(err)
	}
	switch {
	case r.Offer != nil && len(r.Offer.Chunks) > 0:
		b.offer(s, l, r)
	case l.Contribute != "" && len(l.Trained) == 0 && len(r.Trained) == 0 && r.Phase == wire.PhaseReady:
		// asked to contribute and has nothing: the lease has no purpose left
		_, err := b.run(s.ID, run.ReleaseLease{Slot: l.Slot, Reason: l.Contribute})
		b.refused(err)
	}
}

// offer asks whether the delta may be inspected, and queues its inspection once if so.
func (b *batch) offer(s *run.State, l *run.Lease, r wire.SlotReport) {
	if l.Cut != nil && len(r.Offer.Chunks) != *l.Cut {
		return // the cut is on its way to the agent
	}
	job := InspectJob{Run: s.ID, Slot: l.Slot, Epoch: l.Epoch, Number: r.Number, Offer: *r.Offer, Base: s.BaseOf(l), Layout: s.Layout}
	if in := b.c.mem.inspect[l.Slot]; in != nil && sameOffer(in.job, job) {
		return
	}
	ds, err := b.run(s.ID, offerCommand(l.Slot, l.Epoch, r.Number, *r.Offer))
	if err != nil || len(ds) > 0 {
		b.expected(err)
		return
	}
	b.c.mem.inspect[l.Slot] = &inspection{job: job}
}

// expected counts refusals that honest agents do not meet, and no others.
func (b *batch) expected(err error) {
	if k := domain.KindOf(err); k != "" && k != domain.KindFenced {
		b.c.stats.ReportRefused++
	}
}

func offerCommand(slot domain.SlotID, epoch domain.Epoch, number int, o wire.Offer) run.OfferContribution {
	return run.OfferContribution{
		Slot: slot, Epoch: epoch, Number: number, Chunks: o.Chunks, Boundaries: o.Boundaries, Steps: o.Steps, Blob: o.Blob, Codec: o.Codec,
	}
}

func sameOffer(a, b InspectJob) bool {
	return a.Run == b.Run && a.Slot == b.Slot && a.Epoch == b.Epoch && a.Number == b.Number && a.Offer.Blob == b.Offer.Blob &&
		slices.Equal(a.Offer.Chunks, b.Offer.Chunks)
}

// hear takes a report under the present epoch into the slot's memory.
func (s *slotMemory) hear(id domain.RunID, r wire.SlotReport, now time.Time) {
	fresh := s.run != id || s.epoch != r.Epoch
	s.lease(id, r.Epoch, now)
	ready := s.phase == string(wire.PhasePreparing) && r.Phase != wire.PhasePreparing // whose patience is longer: what comes now begins now
	if fresh || ready || r.Progress > s.progress || len(r.Trained) > s.chunks {
		s.moved = now
	}
	s.progress = max(s.progress, r.Progress)
	if r.Phase == wire.PhaseTraining && (s.phase != string(wire.PhaseTraining) || len(r.Trained) != s.chunks) {
		s.began = now
	}
	if r.Phase != wire.PhaseTraining {
		s.began = time.Time{}
	}
	s.phase, s.chunks = string(r.Phase), len(r.Trained)
	s.speed = average(s.speed, run.KnownSpeed(r.Speed))
	s.upload = average(s.upload, run.KnownUpload(r.Upload))
}

// movedAt is when the holder of a lease last showed progress. A lease this process has not heard of yet counts from
// now on: a restarted hub has no silence to reproach anybody with.
func (m *liveness) movedAt(l *run.Lease, id domain.RunID) time.Time {
	s := m.slots[l.Slot]
	if s == nil || s.run != id || s.epoch != l.Epoch || s.moved.Before(m.since) {
		return m.since
	}
	return s.moved
}
