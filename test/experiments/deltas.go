package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/merge"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

// What a machine sends, what bad ones send, and what the hub makes of it.

// Weights of deltas.
const (
	byTokens = ""        // samples of the ledger, the product's
	uniform  = "uniform" // each machine the same
	fednova  = "fednova" // each step the same, and machines by the data that they own: equal parts
)

// Bad machines.
const (
	badHuge    = "hundredfold"       // from the fifth round on
	badAtOnce  = "hundredfold early" // from the first: before the norm gate judges
	badMixed   = "unusable"          // not finite, of another base, of another shape, in turn
	badFrom    = 4                   // rounds before
	topkChunk  = 4096
	topkOf     = 64
	looseScale = 100
)

// delta writes what a machine sends.
func (f *fleet) delta(w work, from domain.Digest) ([]byte, error) {
	local := w.local
	bad := w.machine == len(f.a.speeds)-1
	if f.a.topk {
		local = withValues(local, sparse(values(f.base), values(local)))
	}
	if bad && (f.a.bad == badHuge && f.f.Rounds >= badFrom || f.a.bad == badAtOnce) {
		local = withValues(local, stretched(values(f.base), values(local), looseScale))
	}
	if bad && f.a.bad == badMixed && f.f.Rounds >= badFrom {
		return f.unusable(local, from)
	}
	var out, next bytes.Buffer
	var err error
	if f.a.lossy {
		fb := merge.Feedback{Next: &next}
		if old := f.lost[w.machine]; old != nil {
			fb.Residual, fb.Keep = bytes.NewReader(old), min(float64(f.weight[w.machine])/float64(w.samples), merge.MaxKeep)
		}
		_, err = merge.EncodeWithFeedback(merge.Codec(f.codec()), bytes.NewReader(f.base), bytes.NewReader(local), from, &out, fb)
		f.lost[w.machine], f.weight[w.machine] = next.Bytes(), w.samples
	} else {
		_, err = merge.EncodeDelta(merge.Codec(f.codec()), bytes.NewReader(f.base), bytes.NewReader(local), from, &out)
	}
	f.f.Up += payloadOf(out.Bytes())
	return out.Bytes(), err
}

// unusable spoils a delta in one of three ways.
func (f *fleet) unusable(local []byte, from domain.Digest) ([]byte, error) {
	var out bytes.Buffer
	switch (f.f.Rounds - badFrom) % 3 {
	case 0:
		if _, err := merge.EncodeDelta(merge.CodecFP32, bytes.NewReader(f.base), bytes.NewReader(local), from, &out); err != nil {
			return nil, err
		}
		b := out.Bytes()
		binary.LittleEndian.PutUint32(b[len(b)-4:], math.Float32bits(float32(math.NaN())))
		return b, nil
	case 1:
		_, err := merge.EncodeDelta(merge.CodecFP32, bytes.NewReader(f.base), bytes.NewReader(local), domain.Digest(fmt.Sprintf("%064x", 1<<20)), &out)
		return out.Bytes(), err
	}
	var other bytes.Buffer
	w, err := safetensors.NewWriter(&other, []safetensors.Tensor{{Name: "w", DType: safetensors.F32, Shape: []int64{1}}}, nil)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(make([]byte, 4)); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	_, err = merge.EncodeDelta(merge.CodecFP32, bytes.NewReader(other.Bytes()), bytes.NewReader(other.Bytes()), from, &out)
	return out.Bytes(), err
}

// judge is the hub's gates, with the constants of domain/run. It gives the refusal, "" when the delta counts.
func (f *fleet) judge(w work, delta []byte, from domain.Digest) string {
	if f.a.open {
		return ""
	}
	layout, err := safetensors.NewReader(bytes.NewReader(f.base))
	if err != nil {
		return err.Error()
	}
	found, err := merge.Inspect(bytes.NewReader(f.base), bytes.NewReader(delta),
		merge.Expect{Codec: merge.Codec(f.codec()), Base: from, Layout: safetensors.LayoutDigest(layout.Tensors())})
	switch {
	case err != nil:
		return err.Error()
	case found.Why != "":
		return string(found.Why)
	}
	rate := found.Norm / math.Sqrt(float64(w.steps))
	if f.merged >= run.NormGateFrom && rate > run.NormGate*f.average {
		return string(run.RefusedNorm)
	}
	if f.average == 0 {
		f.average = rate
	}
	f.average = run.NormMemory*f.average + (1-run.NormMemory)*rate
	return ""
}

// sway is the weight of a delta in the merge.
func (f *fleet) sway(w work) int64 {
	if f.a.weigh == byTokens {
		return w.samples
	}
	return 1
}

// nova makes FedNova's deltas of a round's: each by its steps, all together as long as the mean machine's.
func (f *fleet) nova(done []work, inputs []merge.Input, from domain.Digest) {
	if f.a.weigh != fednova {
		return
	}
	mean := 0.0
	for _, w := range done {
		mean += float64(w.steps) / float64(len(done))
	}
	for i, w := range done {
		local := withValues(w.local, stretched(values(f.base), values(w.local), mean/float64(w.steps)))
		var out bytes.Buffer
		_, err := merge.EncodeDelta(merge.CodecFP32, bytes.NewReader(f.base), bytes.NewReader(local), from, &out)
		domain.Assert(err == nil, "finite weights can be written")
		inputs[i].Delta = &out
	}
}

// stretched makes base − local so many times as long.
func stretched(base, local []float32, factor float64) []float32 {
	out := make([]float32, len(base))
	for i := range out {
		out[i] = float32(float64(base[i]) - factor*(float64(base[i])-float64(local[i])))
	}
	return out
}

// sparse keeps the largest differences of every 4,096 and drops the others.
func sparse(base, local []float32) []float32 {
	out := slices.Clone(base)
	for at := 0; at < len(base); at += topkChunk {
		n := min(topkChunk, len(base)-at)
		order := make([]int, n)
		for i := range order {
			order[i] = at + i
		}
		size := func(i int) float64 { return math.Abs(float64(base[i]) - float64(local[i])) }
		slices.SortFunc(order, func(a, b int) int {
			switch x, y := size(a), size(b); {
			case x > y:
				return -1
			case x < y:
				return 1
			}
			return a - b
		})
		for _, i := range order[:max(n*topkOf/topkChunk, 1)] {
			out[i] = local[i]
		}
	}
	return out
}
