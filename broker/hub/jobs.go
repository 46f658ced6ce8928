package hub

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// inspected hears a worker's finding on an offer that still stands; one that no longer does is forgotten.
func (b *batch) inspected(x Inspected) {
	c := b.c
	in := c.mem.inspect[x.Job.Slot]
	if in == nil || !in.running || !sameOffer(in.job, x.Job) {
		return
	}
	in.running = false
	s := c.fold.runs[x.Job.Run]
	if s == nil || s.Leases[x.Job.Slot] == nil || s.Leases[x.Job.Slot].Epoch != x.Job.Epoch {
		delete(c.mem.inspect, x.Job.Slot)
		return
	}
	found := x.Found
	if x.Err != nil {
		// A blob that is not there may have been collected between the agent's question and its offer: ask for it again.
		if domain.KindOf(x.Err) != domain.KindNotFound || !c.mem.overdue(x.Job.Offer.Blob, x.Job.Slot.Machine(), b.now, c.cfg.Timing.Lease) {
			in.attempts++
			in.retry = earlier(b.now.Add(backoff(in.attempts-1, retryFirst, retryLongest)), b.now.Add(c.cfg.Timing.Lease/2))
			return
		}
		found = run.Inspection{Why: run.RefusedUnreadable, Note: "the delta's parts are not in the store"}
	}
	delete(c.mem.wanted, x.Job.Offer.Blob)
	delete(c.mem.inspect, x.Job.Slot)
	b.beginOwn(hubActor, string(x.Job.Run), "inspected", string(x.Job.Slot), uint64Text(uint64(x.Job.Epoch)), uint64Text(b.seq))
	cmd := offerCommand(x.Job.Slot, x.Job.Epoch, x.Job.Number, x.Job.Offer)
	cmd.Inspection = &found
	if _, err := b.run(x.Job.Run, cmd); err != nil {
		b.expected(err)
		return
	}
	b.quarantine(x.Job)
}

// quarantine takes a machine out whose contributions are refused again and again. A run that paused because its norm
// gate refused everybody accuses nobody.
func (b *batch) quarantine(j InspectJob) {
	s, id := b.c.fold.runs[j.Run], j.Slot.Machine()
	if s.Refusals[id] < run.MaxRefusals || s.Paused != "" || b.c.fold.machines[id] == nil {
		return
	}
	b.refused(b.machine(id, machine.Quarantine{Reason: fmt.Sprintf("%d contributions in a row refused in run %s", s.Refusals[id], j.Run)}))
}

// merged hears a worker's result for the round that still waits for it.
func (b *batch) merged(x Merged) {
	c := b.c
	m := c.mem.merges[x.Job.Run]
	s := c.fold.runs[x.Job.Run]
	if m == nil || !m.running || !sameMerge(m.job, x.Job) {
		return
	}
	m.running = false
	if !awaitsMerge(s) {
		delete(c.mem.merges, x.Job.Run)
		return
	}
	b.beginOwn(hubActor, string(x.Job.Run), "merged", string(x.Job.Run), uint64Text(uint64(x.Job.Round)), uint64Text(b.seq))
	switch {
	case len(x.Unreadable) > 0:
		b.unreadable(m, x.Unreadable)
	case x.Err != nil:
		if k := domain.KindOf(x.Err); s.Paused == "" && (k == domain.KindInvalid || k == domain.KindIntegrity || k == domain.KindNotFound) {
			// the arithmetic says no, or base or momentum are gone: the last good model stays and a person must look
			_, err := b.run(s.ID, run.Pause{Reason: domain.Clip("merge failed: "+x.Err.Error(), domain.MaxReasonLength)})
			b.refused(err)
		}
		b.retry(m)
	default:
		delete(c.mem.merges, x.Job.Run)
		for _, in := range x.Job.Inputs {
			delete(c.mem.wanted, in.Blob)
		}
		_, err := b.run(s.ID, run.RecordMerge{Round: x.Job.Round, NextBase: x.Base, NextMomentum: x.Momentum, StepNorm: x.StepNorm,
			BaseBytes: x.BaseBytes, InputBytes: x.InputBytes,
			NextResidual: x.Residual, Increment: x.Increment, IncrementBytes: x.IncrementBytes})
		b.refused(err)
	}
}

// unreadable asks the makers of unreadable deltas for them again, and takes those out of the ledger that nobody can
// give within one lease time.
func (b *batch) unreadable(m *merging, lost []run.MergeInput) {
	revoked := false
	for _, in := range lost {
		if !b.c.mem.overdue(in.Blob, in.Slot.Machine(), b.now, b.c.cfg.Timing.Lease) {
			b.wake(in.Slot.Machine())
			continue
		}
		delete(b.c.mem.wanted, in.Blob)
		_, err := b.run(m.job.Run, run.RevokeContribution{Slot: in.Slot, Number: in.Number,
			Reason: fmt.Sprintf("delta %s cannot be read and its agent did not give it again", in.Blob.Short())})
		b.refused(err)
		revoked = revoked || err == nil
	}
	if revoked {
		delete(b.c.mem.merges, m.job.Run) // the round's inputs are others now
		return
	}
	b.retry(m)
	m.retry = earlier(m.retry, b.now.Add(b.c.cfg.Timing.Suspect)) // the lease time that the agents have is counted in these
}

func (b *batch) retry(m *merging) {
	m.attempts++
	m.retry = b.now.Add(backoff(m.attempts-1, retryFirst, retryLongest))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// overdue notes that a blob is wanted from a machine and reports whether it has been for too long, or in vain.
func (m *liveness) overdue(d domain.Digest, id domain.MachineID, now time.Time, limit time.Duration) bool {
	w := m.wanted[d]
	if w == nil {
		m.wanted[d] = &want{machine: id, since: now}
		return false
	}
	return w.missing || now.Sub(w.since) >= limit
}

// noteMissing hears which wanted blobs the agent does not have: the jobs that wait for them need not wait any longer.
func (b *batch) noteMissing(id domain.MachineID, ds []domain.Digest) {
	mem := b.c.mem
	for _, d := range ds {
		w := mem.wanted[d]
		if w == nil || w.machine != id {
			continue
		}
		w.missing = true
		for _, in := range mem.inspect { // each is only marked: order does not matter
			if in.job.Offer.Blob == d {
				in.retry = b.now
			}
		}
		for _, m := range mem.merges {
			if slices.ContainsFunc(m.job.Inputs, func(in run.MergeInput) bool { return in.Blob == d }) {
				m.retry = b.now
			}
		}
		mem.missedOutputs(d, b.now)
	}
}

// jobs gives the workers what is due, in a fixed order. It is asked after each durable batch, so that a job never runs
// ahead of the log, and one whose result got lost with a worker comes again.
func (c *Core) jobs(now time.Time) []Output {
	var outs []Output
	slots := make([]domain.SlotID, 0, len(c.mem.inspect))
	for id := range c.mem.inspect {
		slots = append(slots, id)
	}
	slices.SortFunc(slots, func(a, b domain.SlotID) int { return strings.Compare(string(a), string(b)) })
	for _, id := range slots {
		if in := c.mem.inspect[id]; !in.running && !now.Before(in.retry) {
			in.running = true
			outs = append(outs, in.job)
		}
	}
	for _, id := range c.fold.live {
		if m := c.mergeOf(c.fold.runs[id]); m != nil && !m.running && !now.Before(m.retry) {
			m.running = true
			outs = append(outs, m.job)
		}
		if v := c.voteOf(c.fold.runs[id]); v != nil && !v.running && !now.Before(v.retry) {
			v.running = true
			outs = append(outs, v.job)
		}
	}
	return outs
}

// mergeOf gives the merge that the run's closed round waits for, nil when it waits for none.
func (c *Core) mergeOf(s *run.State) *merging {
	inputs, waits := s.NeedsMerge()
	if !waits {
		delete(c.mem.merges, s.ID)
		return nil
	}
	job := MergeJob{Run: s.ID, Round: s.Open.Number, Base: s.Open.Base, Momentum: s.Momentum, Inputs: inputs, Eta: s.Open.Eta, Mu: s.Open.Mu,
		Down: s.Spec.Down(), Residual: s.Residual}
	m := c.mem.merges[s.ID]
	if m == nil || !sameMerge(m.job, job) {
		m = &merging{job: job}
		c.mem.merges[s.ID] = m
	}
	return m
}

// redoInspection makes an inspection due again whose finding was not decided.
func (m *liveness) redoInspection(x Inspected) {
	if in := m.inspect[x.Job.Slot]; in != nil && sameOffer(in.job, x.Job) {
		in.running = false
	}
}

// redoMerge makes a merge due again whose result was not decided.
func (m *liveness) redoMerge(x Merged) {
	if g := m.merges[x.Job.Run]; g != nil && sameMerge(g.job, x.Job) {
		g.running = false
	}
}

func sameMerge(a, b MergeJob) bool {
	return a.Run == b.Run && a.Round == b.Round && a.Base == b.Base && a.Momentum == b.Momentum && a.Residual == b.Residual && slices.Equal(a.Inputs, b.Inputs)
}
