// Package merge is the arithmetic of a fused run: how a delta is written (codecs), what is measured when one arrives
// (Inspect), and how a round's deltas become the next base (Merge: weighted mean, outer Nesterov step).
//
// All of it streams tile by tile over safetensors files in canonical order and is the same bit for bit on every
// machine: float64, a fixed order of additions, every product wrapped in a conversion so that no compiler fuses it with
// an addition, no math function but the correctly rounded square root. It never judges (domain/run does), never stores
// and starts no goroutine.
//
// Agents call EncodeDelta or EncodeWithFeedback, and ApplyIncrement where the next base comes as an increment; the hub's
// workers call Inspect and Merge; run replay --verify calls Merge again.
package merge

import (
	"tensorturn/domain"
	"tensorturn/domain/safetensors"
)

// Codec names how a delta is written. The names are those of run.Codec; a test holds them together.
type Codec string

// The codecs.
const (
	CodecFP32   Codec = "fp32" // the local weights themselves: 32 bits a parameter, exact
	CodecInt8   Codec = "int8" // base − local in 255 even steps: 8.125 bits a parameter
	CodecE3M0   Codec = "e3m0" // base − local in sign and power of two: 4.125 bits a parameter
	CodecTwoBit Codec = "2bit" // base − local in sign and two magnitudes: 2.125 bits a parameter, to be used with feedback
)

// Limits of a merge.
const (
	// MaxInputs bounds the deltas of one merge: as many as a round may have chunks.
	MaxInputs = 1 << 15
	// MaxTotalSamples keeps the sum of all weights exact in a float64.
	MaxTotalSamples = 1 << 53
)

// tileValues is how many values of each stream are in memory at once: three float64 tiles and the raw bytes fit a
// second-level cache. It is a multiple of BlockValues.
const tileValues = 8192

// Metadata of a delta file, beside "format". A delta says what it is and what it was made from.
const (
	metaCodec  = "tensorturn.codec"
	metaBase   = "tensorturn.base"   // blob id of the base weights
	metaLayout = "tensorturn.layout" // safetensors.LayoutDigest of the base weights
)

// Fault is what is wrong with a delta. The names are those of run.Refusal; a test holds them together.
type Fault string

// The faults.
const (
	FaultUnreadable Fault = "unreadable" // truncated, damaged, not a delta of the codec
	FaultBase       Fault = "base"       // made from another base
	FaultLayout     Fault = "layout"     // names, shapes or dtypes differ
	FaultNotFinite  Fault = "not_finite" // NaN or Inf
)

// gates switches the checks of a delta. Only tests switch one off, to see what it holds back.
type gates struct {
	base, layout, finite, result bool
}

var allGates = gates{base: true, layout: true, finite: true, result: true}

// deltaTensors describes the tensors of a delta for weights of the given layout.
func deltaTensors(codec Codec, weights []safetensors.Tensor) ([]safetensors.Tensor, error) {
	if codec == CodecFP32 {
		return weights, nil
	}
	ts := make([]safetensors.Tensor, len(weights))
	for i, t := range weights {
		n, err := t.Count()
		if err != nil {
			return nil, err
		}
		ts[i] = safetensors.Tensor{Name: t.Name, DType: safetensors.U8, Shape: []int64{codeBytes(codec, n)}}
		if ClassOf(t) == Statistic {
			ts[i] = t // values: a coded difference could make a variance negative
		}
	}
	return ts, nil
}

// deltaMetadata is what a delta says about itself.
func deltaMetadata(codec Codec, base, layout domain.Digest) map[string]string {
	return map[string]string{metaCodec: string(codec), metaBase: string(base), metaLayout: string(layout)}
}

// OuterDefaults are the outer learning rate and momentum for a run of so many planned rounds. High momentum overshoots
// on short runs (DiLoCo, arXiv 2311.08105, published 0.7 and 0.9 for long ones; the others are from the project's own
// pilot).
func OuterDefaults(plannedRounds int) (eta, mu float64) {
	switch {
	case plannedRounds > 400:
		return 0.7, 0.9
	case plannedRounds >= 40:
		return 0.7, 0.7
	}
	return 1.0, 0.5
}
