package hub

import (
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// memberReport takes over what the slot has stored of its member, in the order of the member's life. A fact may end the
// lease; what comes after it in the report is then the next holder's.
func (b *batch) memberReport(s *run.State, l *run.Lease, r wire.Member) {
	b.c.mem.slots[l.Slot].done = run.MemberSamples(s.MemberSpec(l.Member), s.Data, r.Chunks)
	held := func() bool { return s.Leases[l.Slot] == l }
	record := func(c run.Command) {
		_, err := b.run(s.ID, c)
		b.refused(err)
	}
	if k := r.Checkpoint; k != nil && isNews(s, l, k) {
		record(run.RecordCheckpoint{Slot: l.Slot, Epoch: l.Epoch, Chunks: k.Chunks, Blob: k.Blob, Loss: k.Loss, Bytes: k.Bytes})
	}
	if t := r.Trained; t != nil && held() && s.Member(l.Member).Weights == "" {
		record(run.RecordMember{Slot: l.Slot, Epoch: l.Epoch, Weights: t.Weights, Layout: t.Layout, Params: t.Params, Loss: t.Loss})
	}
	if (r.Outputs != nil || r.Mute != "") && held() && s.Member(l.Member).Weights != "" {
		record(run.RecordOutputs{Slot: l.Slot, Epoch: l.Epoch, Outputs: r.Outputs, Why: told(r.Mute)})
	}
}

// isNews reports whether the checkpoint says more than the log: it stands in every report. An empty one answers a recall.
func isNews(s *run.State, l *run.Lease, k *wire.Checkpoint) bool {
	return l.Contribute != "" || k.Blob != "" && k.Chunks > s.Member(l.Member).Chunks
}

// memberDesire fills in what the holder of a member needs to know.
func memberDesire(d *wire.SlotDesire, s *run.State, l *run.Lease) {
	m := s.Member(l.Member)
	d.Member, d.Base, d.Saved, d.Trained = m.Number, m.Checkpoint, m.Chunks, m.Weights != ""
	d.Contribute = l.Contribute != ""
}

// memberBlobs lists what of an ensemble must stay: the newest checkpoints of members under way, weights and outputs of those
// that are trained.
func memberBlobs(s *run.State) []domain.Digest {
	if s.Ensemble == nil {
		return nil
	}
	var out []domain.Digest
	for i := range s.Ensemble.Members {
		m := &s.Ensemble.Members[i]
		if m.Status == run.MemberGone || s.Phase.Ended() && m.Status != run.MemberIn {
			continue
		}
		out = append(out, m.Checkpoint, m.Weights)
		if m.Outputs != nil {
			out = append(out, m.Outputs.Blob)
		}
	}
	return out
}

// ageOf is how long a run's open round, or an ensemble since its first lease, has been under way. An ensemble's deadline is its
// owner's: it goes on while the hub is off.
func (c *Core) ageOf(s *run.State, now time.Time) (seconds float64, known bool) {
	switch {
	case s.Ensemble != nil && s.Ensemble.Began > 0:
		return max(0, now.Sub(time.UnixMicro(s.Ensemble.Began)).Seconds()), true
	case s.Open != nil:
		return now.Sub(c.mem.opened(s.ID, s.Open.Number, now)).Seconds(), true
	}
	return 0, false
}
