package sim

import (
	"bytes"
	"context"

	"tensorturn/agent"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/merge"
	"tensorturn/domain/run"
)

// drawCodecs spreads the codecs over the runs without a draw of its own, so that older seeds keep their meaning but for
// the bytes of deltas.
func drawCodecs(s *run.Spec) {
	if s.Codec == run.CodecE3M0 {
		s.Codec = [...]run.Codec{run.CodecE3M0, run.CodecInt8, run.CodecTwoBit}[s.Seed/2%3]
	}
	s.CodecDown = [...]run.Codec{"", run.CodecE3M0, run.CodecInt8, run.CodecFP32}[s.Seed/8%4]
}

// lost is what a coded delta has lost, and how many samples it weighed.
type lost struct {
	residual weights
	samples  int64
	round    int
}

// encodeLossy is the delta of honest work with what the delta before has lost, and what this one loses.
func encodeLossy(codec run.Codec, base, local weights, baseID domain.Digest, before *lost, samples int64) ([]byte, weights) {
	var b, next bytes.Buffer
	f := merge.Feedback{Next: &next}
	if before != nil {
		f.Residual = bytes.NewReader(before.residual.encode(tensorName))
		f.Keep = min(float64(before.samples)/float64(samples), merge.MaxKeep)
	}
	_, err := merge.EncodeWithFeedback(merge.Codec(codec), bytes.NewReader(base.encode(tensorName)), bytes.NewReader(local.encode(tensorName)), baseID, &b, f)
	must(err)
	w, err := decodeWeights(&next)
	must(err)
	return b.Bytes(), w
}

// lossy makes a delta as the product's worker does: with the loss of the delta that the hub says counts, if this process
// made it not longer than a round ago.
func (s *slotBox) lossy(e agent.MakeDelta, base, local weights, made *product) []byte {
	if k, ok := s.lost[e.Fed]; ok && e.Round-k.round <= 1 {
		made.fed, made.before = e.Fed, &k
		s.p.m.w.mark(markFedBack)
	}
	made.samples = e.Samples
	data, rest := encodeLossy(e.Codec, base, local, e.Base, made.before, e.Samples)
	id, _ := packBlob(data)
	kept := map[domain.Digest]lost{id: {residual: rest, samples: e.Samples, round: e.Round}}
	if k, ok := s.lost[e.Fed]; ok {
		kept[e.Fed] = k
	}
	s.lost = kept
	return data
}

// grow makes a base from the one before, if the disk holds that: the increment must lead to the bytes that the log names.
func (m *machineBox) grow(base domain.Digest, in *wire.Increment) {
	if in == nil || m.cache[base] != nil || m.cache[in.From] == nil {
		return
	}
	ctx := context.Background()
	from, err := blob.Open(ctx, in.From, m.fetch)
	if err != nil {
		return // the base is asked for whole
	}
	increment, err := blob.Open(ctx, in.Blob, m.fetch)
	if err != nil {
		return
	}
	var b bytes.Buffer
	err = merge.ApplyIncrement(merge.Codec(in.Codec), from, increment, in.From, &b)
	if domain.KindOf(err) == domain.KindUnavailable {
		return
	}
	must(err)
	id, objs := packBlob(b.Bytes())
	if id != base {
		fail("increment %s leads from %s to %s, not to %s", in.Blob.Short(), in.From.Short(), id.Short(), base.Short())
	}
	m.w.mark(markGrown)
	for _, o := range objs {
		m.cache[o.id] = o.data
	}
}
