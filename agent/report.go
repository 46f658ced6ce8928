package agent

import (
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// report says what the slot holds and has done. While fenced it makes no offer: the hub must confirm the epoch first.
func (s *slot) report(fenced bool) wire.SlotReport {
	r := wire.SlotReport{Index: s.index, Phase: wire.PhaseIdle, Progress: s.progress, Speed: s.speed, Upload: s.upload}
	l := s.lease
	if l == nil {
		if s.late != nil {
			r.Late = s.late.report()
		}
		return r
	}
	r.Run, r.Epoch, r.Number, r.Error, r.Phase = l.run, l.epoch, l.number, l.err, l.phase()
	r.Tail = l.tail
	r.Trained = append([]wire.TrainedChunk(nil), l.trained...)
	r.Loss = s.loss
	if l.unit == run.UnitTrain && !l.spoiled {
		r.Boundaries = append([]int(nil), l.boundaries...)
	}
	if r.Speed == 0 && l.partial.seconds > 0 { // the first chunk is still under way
		r.Speed = positive(float64(l.partial.samples) / l.partial.seconds)
	}
	if l.member != nil {
		r.Member = l.member.report(l, fenced)
	}
	if fenced {
		return r
	}
	if d := l.offered(); d != nil && l.unit == run.UnitTrain && l.err == "" {
		r.Offer = l.offer(d)
	}
	if l.init != nil && l.uploaded {
		init := *l.init
		r.Init = &init
	}
	if l.eval != nil {
		eval := *l.eval
		r.Eval = &eval
	}
	return r
}

func (l *lease) offer(d *delta) *wire.Offer {
	o := &wire.Offer{Blob: d.blob, Codec: l.job.Spec.Codec, Boundaries: append([]int(nil), l.boundaries...)}
	o.Chunks = make([]domain.ChunkID, 0, len(l.trained))
	for _, t := range l.trained {
		o.Chunks = append(o.Chunks, t.Chunk)
		o.Steps += t.Steps
	}
	return o
}

func (l *lease) phase() wire.Phase {
	switch {
	case l.done || l.err != "":
		return wire.PhaseReady
	case !l.prepared && !l.adopted:
		return wire.PhasePreparing
	case l.unit == run.UnitInit:
		return wire.PhaseInit
	case l.unit == run.UnitEvaluate:
		return wire.PhaseEvaluate
	case l.op == opTrain:
		return wire.PhaseTraining
	case l.op == opPredict:
		return wire.PhasePredict
	case l.op == opKeep || l.op == opFinish:
		return wire.PhaseUploading
	case l.op == opDelta || l.op == opUpload || l.delta != nil && !l.delta.uploaded:
		return wire.PhaseUploading
	case l.offered() != nil:
		return wire.PhaseOffered
	}
	return wire.PhaseReady
}
