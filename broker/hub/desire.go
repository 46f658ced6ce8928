package hub

import (
	"slices"
	"strings"
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// desire is the hub's word to a machine: a function of the state, the machine and what it reported. It changes nothing,
// so that a repeated or late request can be answered as well as a new one.
func (c *Core) desire(in *Sync, now time.Time) *wire.SyncReply {
	m := c.fold.machines[in.Machine]
	r := &wire.SyncReply{
		Interval: c.cfg.Timing.Sync.Seconds(), Lease: c.cfg.Timing.Lease.Seconds(), Time: now.UnixMilli(),
		Stop: m.Standing == machine.Drained || in.Request.Stopping && m.Draining && !c.fold.holds(in.Machine), Wanted: c.mem.wantedFrom(in.Machine), Merged: c.fold.mergedFor(in.Machine),
	}
	if !m.Resting() {
		r.Bench = m.BenchWanted()
	}
	if !m.Rest.Empty() {
		r.Rest = &machine.Rest{Hours: slices.Clone(m.Rest.Hours), WhileUsed: m.Rest.WhileUsed}
	}
	r.Slots = make([]wire.SlotDesire, len(in.Request.Slots))
	for i := range r.Slots {
		r.Slots[i] = c.fold.slotDesire(in.Machine, in.Request.Slots[i])
	}
	return r
}

// slotDesire is what one slot should hold and do.
func (f *fold) slotDesire(m domain.MachineID, r wire.SlotReport) wire.SlotDesire {
	slot := domain.Slot(m, r.Index)
	s, l := f.lease(slot)
	reported := r.Init != nil || r.Eval != nil || r.Error != ""
	if l == nil {
		return wire.SlotDesire{Index: r.Index, Done: reported}
	}
	held := r.Run == s.ID && r.Epoch == l.Epoch
	d := wire.SlotDesire{Index: r.Index, Run: s.ID, Epoch: l.Epoch, Unit: l.Unit, Round: l.Round, Done: reported && !held}
	switch l.Unit {
	case run.UnitTrain:
		d.Base = s.BaseOf(l)
		d.Fed = s.Fed[slot]
		d.Number = s.Number(slot)
		d.Claims = slices.Concat(l.Trained, l.Claimed)
		d.Contribute = l.Contribute != ""
		if l.Cut != nil {
			keep := *l.Cut
			d.Cut = &keep
		}
		if l.Late != 0 && !held && len(l.Trained) > 0 {
			d.Adopt = &wire.Adopt{Late: l.Late, Keep: len(l.Trained)}
		}
	case run.UnitMember:
		memberDesire(&d, s, l)
	case run.UnitEvaluate:
		d.Base = s.Evaluation.Model
	}
	if d.Base == s.Base && s.Increment != "" {
		d.Increment = &wire.Increment{Blob: s.Increment, From: s.Previous, Codec: s.Spec.Down()}
	}
	if !held {
		d.Job = &wire.Job{Spec: s.Spec, Data: s.Data, Layout: s.Layout}
	}
	return d
}

// mergedFor says, for each run the machine worked for, up to which round its deltas are not needed any more. A run that
// ended without a merge needs none of them.
func (f *fold) mergedFor(m domain.MachineID) []wire.MergedRound {
	var out []wire.MergedRound
	for _, id := range f.worked[m] {
		s := f.runs[id]
		round := s.Merged
		if open, _ := s.OpenRound(); s.Phase.Ended() && open > 0 {
			round = open
		}
		out = append(out, wire.MergedRound{Run: id, Round: round})
	}
	return out
}

// wantedFrom lists the blobs asked for again from a machine, oldest digest order, at most wire.MaxWanted.
func (m *liveness) wantedFrom(id domain.MachineID) []domain.Digest {
	var out []domain.Digest
	for d, w := range m.wanted {
		if w.machine == id && !w.missing {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b domain.Digest) int { return strings.Compare(string(a), string(b)) })
	return out[:min(len(out), wire.MaxWanted)]
}
