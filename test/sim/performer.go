package sim

import (
	"context"
	"io"
	"time"

	"tensorturn/agent"
	"tensorturn/agent/cache"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

// slotBox performs the effects of one slot: what the product's worker does with a trainer and a disk, it does with
// eight numbers and virtual time.
type slotBox struct {
	p     *process
	index int
	token int  // effects of earlier tokens have been abandoned
	busy  bool // an effect is under way
	epoch domain.Epoch

	run     domain.RunID
	round   int
	spec    run.Spec
	data    run.Dataset
	weights weights
	chunks  []domain.ChunkID // that the weights hold on top of their base
	disk    *slotDisk
	lost    map[domain.Digest]lost // by the delta that lost it
}

// work names the delta that an agent was asked for.
type work struct {
	run    domain.RunID
	slot   domain.SlotID
	epoch  domain.Epoch
	number int
}

// product is what an agent has really made.
type product struct {
	blob   domain.Digest
	chunks []domain.ChunkID
	poison poison
	// Of a codec with feedback: the delta whose loss went into it, that loss, and its own samples.
	fed     domain.Digest
	before  *lost
	samples int64
}

func (p *process) perform(e agent.Effect) {
	switch e := e.(type) {
	case agent.SendSync:
		p.sync(e)
	case agent.Abandon:
		p.slots[e.Slot].abandon(e.Keep)
	case agent.CloseTrainer:
		p.slots[e.Slot].run = ""
	case agent.UploadAgain:
		p.uploadAgain(e)
	case agent.DropDeltas:
		p.m.drop(e.Run, e.Round)
	case agent.SaveHead, agent.SaveCredential:
	case agent.Exit:
		p.m.say("agent ends: %s", e.Reason)
		p.dead = true
		p.m.proc = nil
	case agent.Prepare:
		p.slots[e.Slot].prepare(e)
	case agent.Train:
		p.slots[e.Slot].train(e)
	case agent.MakeDelta:
		p.slots[e.Slot].makeDelta(e)
	case agent.Upload:
		s := p.slots[e.Slot]
		s.begin(e.Epoch)
		s.upload(e.Blob, func() { s.end(agent.Uploaded{Slot: s.index, Epoch: e.Epoch, Blob: e.Blob}) })
	case agent.Reset:
		p.slots[e.Slot].reset(e)
	case agent.RunInit:
		p.slots[e.Slot].initialise(e)
	case agent.RunEvaluate:
		p.slots[e.Slot].evaluate(e)
	case agent.KeepMember:
		p.slots[e.Slot].keepMember(e)
	case agent.FinishMember:
		p.slots[e.Slot].finishMember(e)
	case agent.PredictMember:
		p.slots[e.Slot].predictMember(e)
	default:
		fail("the agent asks for %T, which nobody knows", e)
	}
}

// begin marks that an effect is under way. A slot does one thing at a time.
func (s *slotBox) begin(epoch domain.Epoch) {
	if s.busy {
		fail("%s/%d is given an effect while one is under way", s.p.m.opt.ID, s.index)
	}
	s.busy, s.epoch = true, epoch
	s.token++
}

// later goes on with the effect in d of the machine's time, unless it was abandoned.
func (s *slotBox) later(d time.Duration, do func()) {
	token, m := s.token, s.p.m
	if m.slowUntil > m.w.k.now {
		d = time.Duration(float64(d) * m.slow)
	}
	m.w.k.after(d, func() {
		s.p.awake(func() {
			if s.token == token {
				do()
			}
		})
	})
}

// end gives the effect's result.
func (s *slotBox) end(in agent.Input) {
	s.busy = false
	s.p.give(in)
}

func (s *slotBox) abandon(keep bool) {
	s.token++
	s.busy = false
	if !keep {
		s.disk.clear()
	}
}

// quick is what small things take.
func (s *slotBox) quick() time.Duration {
	return s.p.m.luck.span(time.Millisecond, s.p.m.w.opt.Timing.Sync)
}

func (s *slotBox) transferError(err error, local bool) {
	s.p.m.say("slot %d: transfer fails: %v", s.index, err)
	s.end(agent.TransferError{Slot: s.index, Epoch: s.epoch, Error: err.Error(), Local: local})
}

// broken spends one of the errors that the nemesis has put into the trainer.
func (s *slotBox) broken() bool {
	if s.p.m.err == 0 {
		return false
	}
	s.p.m.err--
	s.p.m.w.injected[faultTask]++
	s.p.m.say("slot %d: the trainer fails", s.index)
	s.end(agent.TaskError{Slot: s.index, Epoch: s.epoch, Error: "broken by the nemesis: " + s.p.m.w.bias.leak()})
	return true
}

func (s *slotBox) prepare(e agent.Prepare) {
	s.begin(e.Epoch)
	s.later(s.quick(), func() {
		s.p.give(agent.Moved{Slot: s.index, Epoch: e.Epoch, Bytes: 100})
		s.later(s.quick(), func() { s.prepared(e) })
	})
}

func (s *slotBox) prepared(e agent.Prepare) {
	if s.broken() {
		return
	}
	if e.Keep == 0 {
		s.disk.clear()
	} else {
		s.disk.rename(cache.Line{Run: e.Run, Epoch: e.Epoch, Round: e.Round, Number: e.Number, Boundary: e.Keep})
	}
	r, err := blob.Open(context.Background(), e.Job.Data.Blob, s.p.m.fetch)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	if err != nil {
		s.transferError(err, false)
		return
	}
	s.run, s.round, s.spec, s.data = e.Run, e.Round, e.Job.Spec, e.Job.Data
	if want := e.Job.Layout; want != "" && want != safetensors.LayoutDigest(layout(tensorName)) {
		fail("%s is told layout %s", s.p.m.opt.ID, want)
	}
	if e.Unit == run.UnitMember {
		if err := s.resume(e); err != nil {
			s.transferError(err, false)
			return
		}
	} else if e.Base != "" {
		s.p.m.grow(e.Base, e.Increment)
		w, err := s.p.m.base(e.Base)
		if err != nil {
			s.transferError(err, false)
			return
		}
		s.weights, s.chunks = w, nil
	}
	s.end(agent.Prepared{Slot: s.index, Epoch: e.Epoch})
}

// train takes samples ÷ speed and tells of every batch.
func (s *slotBox) train(e agent.Train) {
	s.begin(e.Epoch)
	if e.Boundary != len(s.chunks)+1 && e.Boundary > 0 { // a member keeps checkpoints instead
		fail("%s/%d shall make boundary %d of weights that hold %v", s.p.m.opt.ID, s.index, e.Boundary, s.chunks)
	}
	if s.p.m.hang > 0 {
		s.p.m.hang--
		s.p.m.say("slot %d: the trainer hangs", s.index)
		return
	}
	samples := run.ChunkSamples(s.spec, s.data, e.Chunk)
	began := s.p.clock()
	s.batch(e, samples, began)
}

// batch trains what is left of a chunk, one batch after another.
func (s *slotBox) batch(e agent.Train, left int, began time.Duration) {
	n := min(left, batchSize)
	d := time.Duration(float64(n) / s.p.m.opt.Speed * s.p.m.luck.between(0.8, 1.2) * float64(time.Second))
	s.later(d, func() {
		if s.broken() {
			return
		}
		s.p.give(agent.Stepped{Slot: s.index, Epoch: e.Epoch, Steps: 1, Samples: n, Seconds: d.Seconds(), Loss: 1})
		if left > n {
			s.batch(e, left-n, began)
			return
		}
		s.weights = s.weights.train(s.p.m.w.bias.seed(s.spec.Seed, e.Chunk), e.Chunk)
		s.chunks = append(s.chunks[:len(s.chunks):len(s.chunks)], e.Chunk)
		if e.Boundary > 0 {
			s.keep(e)
		}
		s.end(agent.ChunkTrained{Slot: s.index, Epoch: e.Epoch, Chunk: e.Chunk, Samples: run.ChunkSamples(s.spec, s.data, e.Chunk),
			Steps: run.ChunkSteps(s.spec, s.data, e.Chunk), Seconds: (s.p.clock() - began).Seconds(), Loss: 1})
	})
}

func (s *slotBox) reset(e agent.Reset) {
	s.begin(e.Epoch)
	s.later(s.quick(), func() {
		snap, ok := s.disk.snaps[e.Boundary]
		if e.Boundary == 0 {
			s.disk.clear()
			w, err := s.p.m.base(e.Base)
			if err != nil {
				s.transferError(err, false)
				return
			}
			snap, ok = snapshot{weights: w}, true
		}
		if !ok {
			s.transferError(domain.NotFound("reset", "the snapshot is gone", ""), true)
			return
		}
		s.weights, s.chunks = snap.weights, snap.chunks
		s.end(agent.ResetDone{Slot: s.index, Epoch: e.Epoch, Boundary: e.Boundary})
	})
}

// poisoned takes the next poison for a delta of the run, empty for none. One for the norm gate mostly waits until that is
// in force.
func (m *machineBox) poisoned(id domain.RunID) poison {
	if len(m.poison) == 0 {
		return ""
	}
	p := m.poison[0]
	if b := m.w.past.books[id]; p == poisonNorm && b.merges < run.NormGateFrom && m.luck.chance(0.9) {
		return ""
	}
	m.poison = m.poison[1:]
	return p
}

func (s *slotBox) makeDelta(e agent.MakeDelta) {
	s.begin(e.Epoch)
	s.later(s.quick(), func() {
		s.disk.rename(cache.Line{Run: e.Run, Epoch: e.Epoch, Round: e.Round, Number: e.Number, Boundary: e.Boundary})
		snap, ok := s.disk.snaps[e.Boundary]
		if !ok {
			s.transferError(domain.NotFound("make delta", "the snapshot is gone", ""), true)
			return
		}
		base, err := s.p.m.base(e.Base)
		if err != nil {
			s.transferError(err, false)
			return
		}
		made, data := product{chunks: snap.chunks}, []byte(nil)
		if made.poison = s.p.m.poisoned(e.Run); made.poison != "" {
			s.p.m.say("slot %d: makes a poisoned delta: %s", s.index, made.poison)
			data = poisonedDelta(made.poison, e.Codec, base, snap.weights, e.Base)
		} else if e.Codec.Feedback() {
			data = s.lossy(e, base, snap.weights, &made)
		} else {
			data = encodeDelta(e.Codec, base, snap.weights, e.Base)
		}
		made.blob = s.p.m.store(e.Run, e.Round, data)
		k := work{e.Run, domain.Slot(s.p.m.opt.ID, s.index), e.Epoch, e.Number}
		s.p.m.w.made[k] = append(s.p.m.w.made[k], made)
		s.end(agent.DeltaMade{Slot: s.index, Epoch: e.Epoch, Number: e.Number, Boundary: e.Boundary, Blob: made.blob})
	})
}

func (s *slotBox) initialise(e agent.RunInit) {
	s.begin(e.Epoch)
	s.later(s.quick(), func() {
		if s.broken() {
			return
		}
		base := s.p.m.store(s.run, 0, firstWeights(s.spec.Seed).encode(tensorName))
		s.end(agent.InitDone{Slot: s.index, Epoch: e.Epoch, Base: base, Layout: safetensors.LayoutDigest(layout(tensorName)), Params: modelSize})
	})
}

func (s *slotBox) evaluate(e agent.RunEvaluate) {
	s.begin(e.Epoch)
	s.later(s.quick(), func() {
		if s.broken() {
			return
		}
		w, err := s.p.m.base(e.Model)
		if err != nil {
			s.transferError(err, false)
			return
		}
		if !w.finite() {
			fail("%s shall measure a model that is not finite", s.p.m.opt.ID)
		}
		s.end(agent.Evaluated{Slot: s.index, Epoch: e.Epoch, Samples: s.data.Heldout, Accuracy: 0.5, Loss: 1})
	})
}
