package sim

import (
	"bytes"
	"time"

	"tensorturn/agent"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/permute"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
	"tensorturn/domain/vote"
)

// streamEnsemble draws ensembles apart from the other options, so that older seeds keep their meaning.
const streamEnsemble = 1 << 40

// drawEnsemble adds an ensemble to some worlds. Its data are a program's, whose outputs bring their labels.
func (o *options) drawEnsemble(lease time.Duration) {
	l := newLuck(o.Seed, streamEnsemble)
	if !l.chance(0.35) {
		return
	}
	chunk := o.Runs[0].Spec.Chunk
	s := run.Spec{Name: "ensemble", Mode: run.ModeEnsemble, Trainer: run.Process, Command: []string{"python", "train.py"}, Seed: l.Uint64()>>1 | 1,
		Batch: batchSize, Chunk: chunk, Epochs: l.number(1, 2), Data: run.Data{Samples: l.number(2*chunk, 8*chunk), Heldout: 12 * l.pick(2), Classes: 2},
		Ensemble: &run.Ensemble{Members: l.number(1, 5), Min: 1, Every: l.between(0.1, 1) * lease.Seconds(), Single: l.chance(0.2)}}
	if l.chance(0.2) {
		s.Ensemble.OnLoss = run.LossDrop
	}
	if l.chance(0.15) {
		s.Ensemble.Deadline = l.between(1, 12) * lease.Seconds()
	}
	blob, _ := packBlob(trainingData)
	d := run.ProcessData(s, blob)
	s, err := run.Resolve(s, d)
	must(err)
	o.Runs = append(o.Runs, runOptions{ID: "e0", Spec: s, Data: d, At: l.span(0, 3*lease)})
}

// mayFail reports whether the run may fail without a trainer's error: machines or time may take too many members.
func mayFail(s run.Spec) bool {
	return s.IsEnsemble() && (s.Ensemble.OnLoss == run.LossDrop || s.Ensemble.Deadline > 0)
}

// workOf is how many samples the run trains at least, all members together.
func workOf(r runOptions) float64 {
	n := float64(r.Data.Samples * r.Spec.Epochs)
	if r.Spec.IsEnsemble() {
		n *= float64(2 * r.Spec.Ensemble.Members) // the single model trains as much as all
	}
	return n
}

// memberAt is the member's weights after its first chunks: every one of them counts once, in order.
func memberAt(s run.Spec, member, chunks int) weights {
	m := run.MemberSpec(s, member)
	w := firstWeights(m.Seed)
	for c := range chunks {
		w = w.train(m.Seed, domain.ChunkID(c))
	}
	return w
}

// memberBook is the account of one member.
type memberBook struct {
	chunks  int
	slot    domain.SlotID // of its newest stretch
	trained bool
	in      bool
	gone    bool
}

// noteMember keeps the book of members: a lineage of checkpoints that are really what training its chunks in order gives.
func (p *past) noteMember(id domain.RunID, e event.Envelope) {
	b := p.books[id]
	if b.spec.Ensemble == nil {
		return
	}
	of := func(number int, slot domain.SlotID, epoch domain.Epoch) *memberBook {
		p.current(id, e, slot, epoch, run.UnitMember)
		if b.members[number] == nil {
			b.members[number] = &memberBook{}
		}
		m := b.members[number]
		if m.in || m.gone {
			fail("record %d (%s) is about member %d of %s, which is settled", e.Seq, e.Data.EventName(), number, id)
		}
		return m
	}
	switch d := e.Data.(type) {
	case *run.MemberCheckpointed:
		m := of(d.Member, d.Slot, d.Epoch)
		p.seen(id, e, m, d.Slot, d.Member, d.From, d.Chunks, d.Blob)
	case *run.MemberTrained:
		m := of(d.Member, d.Slot, d.Epoch)
		s := run.MemberSpec(b.spec, d.Member)
		if m.trained || d.Chunks != run.TotalChunks(s, b.data) || d.Samples != int64(s.Epochs*b.data.Samples) {
			fail("record %d has member %d of %s trained with %d chunks and %d samples, trained before %v", e.Seq, d.Member, id, d.Chunks, d.Samples, m.trained)
		}
		p.seen(id, e, m, d.Slot, d.Member, d.From, d.Chunks, d.Weights)
		m.trained = true
	case *run.MemberPredicted:
		m := of(d.Member, d.Slot, d.Epoch)
		if !m.trained {
			fail("record %d brings member %d of %s in untrained", e.Seq, d.Member, id)
		}
		m.in = true
	case *run.MemberMuted:
		b.members[d.Member].in = !d.Again
	case *run.MemberDropped:
		if m := b.members[d.Member]; m != nil && m.in {
			fail("record %d drops member %d of %s, which is in", e.Seq, d.Member, id)
		}
		b.members[d.Member] = &memberBook{gone: true}
		p.w.mark(markMemberDropped)
	case *run.Voted:
		for _, v := range d.Members {
			if m := b.members[v.Member]; m == nil || !m.in {
				fail("record %d votes over member %d of %s, which is not in", e.Seq, v.Member, id)
			}
		}
		p.w.mark(markVoted)
	}
}

// seen checks a stretch against the lineage, and the stored bytes against the training.
func (p *past) seen(id domain.RunID, e event.Envelope, m *memberBook, slot domain.SlotID, number, from, to int, blob domain.Digest) {
	if from != m.chunks || to < from {
		fail("record %d leads member %d of %s from chunk %d to %d, the book has %d", e.Seq, number, id, from, to, m.chunks)
	}
	if m.slot != "" && m.slot != slot {
		p.w.mark(markMemberResumed)
	}
	m.chunks, m.slot = to, slot
	if w, err := p.w.model(blob); err != nil || w != memberAt(p.books[id].spec, number, to) {
		fail("record %d says that member %d of %s stands at chunk %d in %s, which holds something else (%v)", e.Seq, number, id, to, blob.Short(), err)
	}
}

// noteEnsembleEnd: every member is in or dropped, and those that are in have seen their data once.
func (p *past) noteEnsembleEnd(id domain.RunID, e event.Envelope, d *run.Completed) {
	b := p.books[id]
	var samples int64
	n, in := b.spec.Ensemble.Members, 0
	if b.spec.Ensemble.Single {
		n++
	}
	for k := 1; k <= n; k++ {
		m := b.members[k]
		switch {
		case m == nil || !m.in && !m.gone:
			fail("record %d completes %s without member %d", e.Seq, id, k)
		case m.in:
			samples += run.TotalSamples(run.MemberSpec(b.spec, k), b.data)
			if k <= b.spec.Ensemble.Members {
				in++
			}
		}
	}
	if d.Samples != samples || d.Members != in || in < b.spec.Ensemble.Min {
		fail("record %d completes %s with %d samples and %d members; %d and %d are right", e.Seq, id, d.Samples, d.Members, samples, in)
	}
}

// resume gives the slot the state that a member goes on from.
func (s *slotBox) resume(e agent.Prepare) error {
	s.spec = run.MemberSpec(e.Job.Spec, e.Member)
	if e.Base == "" {
		s.weights, s.chunks = firstWeights(s.spec.Seed), nil
		return nil
	}
	w, err := s.p.m.base(e.Base)
	if err != nil {
		return err
	}
	s.weights, s.chunks = w, nil
	return nil
}

func (s *slotBox) keepMember(e agent.KeepMember) {
	s.begin(e.Epoch)
	s.later(s.quick(), func() {
		b := s.weights.encode(tensorName)
		s.end(agent.MemberKept{Slot: s.index, Epoch: e.Epoch, Blob: s.p.m.store(s.run, 0, b), Bytes: int64(len(b))})
	})
}

func (s *slotBox) finishMember(e agent.FinishMember) {
	s.begin(e.Epoch)
	s.later(s.quick(), func() {
		if s.broken() {
			return
		}
		blob := s.p.m.store(s.run, 0, s.weights.encode(tensorName))
		s.end(agent.MemberFinished{Slot: s.index, Epoch: e.Epoch, Weights: blob, Layout: safetensors.LayoutDigest(layout(tensorName)), Params: modelSize})
	})
}

// predictMember answers the held-out rows with something that depends on the weights.
func (s *slotBox) predictMember(e agent.PredictMember) {
	s.begin(e.Epoch)
	s.later(s.quick(), func() {
		if s.broken() {
			return
		}
		out := agent.MemberPredicted{Slot: s.index, Epoch: e.Epoch}
		if s.data.Heldout == 0 {
			out.Why = "nothing is held out"
			s.end(out)
			return
		}
		o := vote.Outputs{Classes: 2}
		for i := range s.data.Heldout {
			r := permute.NewSource(uint64(i), uint64(s.weights[i%modelSize]*1e6))
			q := float32(r.Float64())
			o.Probabilities = append(o.Probabilities, q, 1-q)
			o.Labels = append(o.Labels, int32(i%2))
		}
		var b bytes.Buffer
		must(vote.WriteOutputs(&b, o))
		out.Outputs = run.MemberOutputs{Blob: s.p.m.store(s.run, 0, b.Bytes()), Rows: s.data.Heldout, Classes: 2, Accuracy: 0.5, Loss: 1}
		s.end(out)
	})
}
