package agent

import (
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// memberWork is a member of an ensemble under one lease: trained chunk after chunk from its newest checkpoint, kept in the
// store now and then, and at the end its weights and its outputs.
type memberWork struct {
	number int
	spec   run.Spec // the member's own
	total  int      // its chunks

	at       int           // chunks the weights hold
	loss     float64       // of the newest chunk
	keptLoss float64       // loss at kept
	kept     int           // chunks of the newest checkpoint that was made or resumed from
	keptAt   time.Duration // when that was
	keptSize int64         // bytes of the newest checkpoint that was made
	keepless bool          // its trainer keeps no checkpoints

	checkpoint stored // of kept chunks
	weights    stored
	trained    wire.TrainedMember
	outputs    stored
	made       run.MemberOutputs
	mute       string // why there are no outputs
}

// stored is a blob on its way into the store; empty when there is none.
type stored struct {
	blob domain.Digest
	up   bool
}

func newMember(d wire.SlotDesire) *memberWork {
	spec := run.MemberSpec(d.Job.Spec, d.Member)
	return &memberWork{number: d.Member, spec: spec, total: run.TotalChunks(spec, d.Job.Data)}
}

// memberNumber is the lease's member, 0 when it is for none.
func (l *lease) memberNumber() int {
	if l.member == nil {
		return 0
	}
	return l.member.number
}

// begin sets the work to what Prepare brings back: the newest checkpoint, or the weights when only outputs are wanted. What
// was made before may not be what the trainer holds now.
func (m *memberWork) begin(w want) {
	*m = memberWork{number: m.number, spec: m.spec, total: m.total, keepless: m.keepless, at: w.saved, kept: w.saved}
	if w.trained {
		m.at, m.kept = m.total, m.total
	}
}

// member gives the next thing to do for a member, nil when it waits for the hub. Without contact it goes on training and
// stores nothing.
func (c *Core) member(now time.Duration, s *slot, l *lease) Effect {
	m, fenced := l.member, c.Fenced(now)
	done := l.want.trained || m.weights.blob != ""
	switch {
	case m.checkpoint.waits() && !fenced:
		return l.begin(opUpload, now, Upload{Slot: s.index, Epoch: l.epoch, Blob: m.checkpoint.blob})
	case !done && (l.want.contribute && m.at > m.kept || m.at < m.total && m.due(now, l.job.Data)) && !m.keepless && !fenced:
		return l.begin(opKeep, now, KeepMember{Slot: s.index, Epoch: l.epoch})
	case l.want.contribute && !done:
		return nil // it is given back
	case m.at < m.total:
		l.partial = partial{chunk: domain.ChunkID(m.at)}
		return l.begin(opTrain, now, Train{Slot: s.index, Epoch: l.epoch, Chunk: domain.ChunkID(m.at)})
	case fenced:
		return nil
	case !done:
		return l.begin(opFinish, now, FinishMember{Slot: s.index, Epoch: l.epoch})
	case m.weights.waits():
		return l.begin(opUpload, now, Upload{Slot: s.index, Epoch: l.epoch, Blob: m.weights.blob})
	case m.outputs.blob == "" && m.mute == "":
		return l.begin(opPredict, now, PredictMember{Slot: s.index, Epoch: l.epoch})
	case m.outputs.waits():
		return l.begin(opUpload, now, Upload{Slot: s.index, Epoch: l.epoch, Blob: m.outputs.blob})
	}
	return nil
}

func (b stored) waits() bool { return b.blob != "" && !b.up }

// due reports whether the weights should be kept: at the spec's period, and at the ends of epochs that are not too close to the newest one.
func (m *memberWork) due(now time.Duration, d run.Dataset) bool {
	if m.at <= m.kept {
		return false
	}
	passed, every := (now - m.keptAt).Seconds(), m.spec.Ensemble.Every
	return passed >= every || m.at%run.ChunksPerEpoch(m.spec, d) == 0 && passed >= every*run.CheckpointPause
}

// memberResult takes the end of a member's effect in.
func (c *Core) memberResult(now time.Duration, in Input) {
	switch in := in.(type) {
	case MemberKept:
		if _, l := c.ended(in.Slot, in.Epoch, opKeep); l != nil {
			l.member.kept, l.member.keptAt, l.member.keptLoss = l.member.at, now, l.member.loss
			l.member.keepless, l.member.keptSize = in.Blob == "", in.Bytes
			l.member.checkpoint = stored{blob: in.Blob}
			c.contact.tell()
		}
	case MemberFinished:
		if _, l := c.ended(in.Slot, in.Epoch, opFinish); l != nil {
			l.member.weights = stored{blob: in.Weights}
			l.member.trained = wire.TrainedMember{Weights: in.Weights, Layout: in.Layout, Params: in.Params, Loss: l.member.loss}
		}
	case MemberPredicted:
		if s, l := c.ended(in.Slot, in.Epoch, opPredict); l != nil {
			s.progress++
			l.member.outputs, l.member.made, l.member.mute = stored{blob: in.Outputs.Blob}, in.Outputs, reason(in.Why)
			c.contact.tell()
		}
	}
}

// memberTrained counts a chunk. All: the trainer does the whole member in one go.
func (m *memberWork) memberTrained(in ChunkTrained) {
	m.at++
	if in.All {
		m.at = m.total
	}
	m.loss = in.Loss
}

// memberUploaded notes that a blob is in the store.
func (m *memberWork) memberUploaded(blob domain.Digest) {
	for _, b := range []*stored{&m.checkpoint, &m.weights, &m.outputs} {
		if b.blob == blob {
			b.up = true
		}
	}
}

// memberTorn says what a failure of link or disk has destroyed. When it hit the training, nobody knows how far the trainer
// came: the lease is prepared anew from the newest recorded checkpoint.
func (l *lease) memberTorn(op operation, local bool) {
	m := l.member
	switch {
	case op == opTrain || op == opKeep && local || op == opFinish && local:
		l.prepared = false
	case op == opUpload && local: // made again
		for _, b := range []*stored{&m.checkpoint, &m.weights, &m.outputs} {
			if b.waits() {
				*b = stored{}
			}
		}
		m.kept = min(m.kept, l.want.saved)
	}
}

// report says how far the member is. Under a recall with nothing to keep, an empty checkpoint gives it back.
func (m *memberWork) report(l *lease, fenced bool) *wire.Member {
	r := &wire.Member{Chunks: m.at}
	if fenced {
		return r
	}
	switch {
	case m.checkpoint.up:
		r.Checkpoint = &wire.Checkpoint{Chunks: m.kept, Blob: m.checkpoint.blob, Loss: m.keptLoss, Bytes: m.keptSize}
	case l.want.contribute && l.op == opNone && l.prepared && (m.keepless || m.at <= l.want.saved):
		r.Checkpoint = &wire.Checkpoint{Chunks: l.want.saved}
	}
	if m.weights.up {
		trained := m.trained
		r.Trained = &trained
	}
	if m.outputs.up {
		made := m.made
		r.Outputs = &made
	}
	r.Mute = m.mute
	return r
}
