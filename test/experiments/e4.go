package main

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/merge"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

// E4: bytes on the wire at H = 100, measured on the files that agents and hub make, against P·b/8 a machine and round and
// direction, and against data parallel in fp32, which sends gradients up and weights down at every step: 64·H bits a
// parameter and round. The loss of each pair of codecs stands beside it (one seed: E5 judges losses).

const (
	wireSteps  = 100
	wireOff    = 0.01 // from the formula
	wireLeast  = 0.95 // of the formula's reduction
	wireFourth = 380  // times less than data parallel with 4 bits both ways
	wireLarge  = 1 << 20
)

// plantFat sends fp32 under every codec's name.
const plantFat = "fp32 under every name"

func wire(l *lab) error {
	base, err := l.fused()
	if err != nil {
		return err
	}
	var arms []arm
	for _, c := range [][2]run.Codec{{run.CodecFP32, ""}, {run.CodecInt8, ""}, {run.CodecE3M0, ""}, {run.CodecInt8, run.CodecInt8},
		{run.CodecE3M0, run.CodecInt8}, {run.CodecE3M0, run.CodecE3M0}, {run.CodecTwoBit, run.CodecE3M0}} {
		a := base
		a.tokens /= 2
		a.name, a.steps, a.codec, a.down, a.lossy = fmt.Sprintf("%s up, %s down", c[0], cmp.Or(c[1], run.CodecFP32)), wireSteps, c[0], c[1], c[0].Feedback()
		arms = append(arms, a)
	}
	var jobs []job
	for i := range arms {
		a := arms[i]
		if l.plant == plantFat {
			a.codec, a.down, a.lossy = "", "", false
		}
		jobs = append(jobs, job{a, 1})
	}
	if err := l.bench.do(l.ctx, jobs); err != nil {
		return err
	}
	l.head("H = 100", "bits a parameter, formula", "measured", "bytes a machine and round, up", "down", "less than fp32 data parallel", "loss, nats")
	var off, short []string
	fourth := 0.0
	for i, a := range arms {
		m := l.bench.known[jobs[i].key()]
		up, down := float64(m.Up)/float64(m.Deltas), float64(m.Down)/float64(m.Rounds*len(a.speeds))
		formula := merge.BitsPerValue(merge.Codec(a.codec)) + merge.BitsPerValue(merge.Codec(cmp.Or(a.down, run.CodecFP32)))
		bits := 8 * (up + down) / parameters
		less := 64 * wireSteps / bits
		l.row(a.name, fmt.Sprintf("%.3f", formula), fmt.Sprintf("%.3f", bits), fmt.Sprintf("%.0f", up), fmt.Sprintf("%.0f", down), fmt.Sprintf("%.0f×", less), nats(m.Loss))
		if math.Abs(bits/formula-1) > wireOff {
			off = append(off, a.name)
		}
		if less < wireLeast*64*wireSteps/formula {
			short = append(short, a.name)
		}
		if a.codec == run.CodecE3M0 && a.down == run.CodecE3M0 {
			fourth = less
		}
	}
	l.printf("\nAgainst data parallel in bf16 each figure is half as large.\n\n")
	l.require(len(off) == 0, "measured bytes are within 1 %% of the formula%s", butFor(off))
	l.require(len(short) == 0, "the reduction is at least 0.95 of the formula's%s", butFor(short))
	l.require(fourth >= wireFourth, "4 bits both ways are %.0f times less than fp32 data parallel (needed: %d)", fourth, wireFourth)
	return l.large()
}

func butFor(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ", but for " + strings.Join(names, "; ")
}

// large measures whole files, with header and manifest's share, of a million parameters.
func (l *lab) large() error {
	file := func(shift float32) []byte {
		var b bytes.Buffer
		w, err := safetensors.NewWriter(&b, []safetensors.Tensor{{Name: "bias", DType: safetensors.F32, Shape: []int64{1000}}, {Name: "weight", DType: safetensors.F32, Shape: []int64{wireLarge}}}, nil)
		domain.Assert(err == nil, "a small header can be written")
		raw := make([]byte, 4*(wireLarge+1000))
		for i := range wireLarge + 1000 {
			binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(float32(i%97)+shift*float32(i%13)))
		}
		_, err = w.Write(raw)
		domain.Assert(err == nil && w.Close() == nil, "memory takes everything")
		return b.Bytes()
	}
	from, to := file(0), file(0.01)
	worst := 0.0
	for _, c := range []merge.Codec{merge.CodecFP32, merge.CodecInt8, merge.CodecE3M0, merge.CodecTwoBit} {
		var out bytes.Buffer
		if _, err := merge.EncodeDelta(c, bytes.NewReader(from), bytes.NewReader(to), domain.Digest(strings.Repeat("0", 64)), &out); err != nil {
			return err
		}
		worst = max(worst, math.Abs(8*float64(out.Len())/(wireLarge+1000)/merge.BitsPerValue(c)-1))
	}
	l.require(worst <= wireOff, "whole files of a million parameters are within 1 %% of the formula in every codec (worst %.2f %%)", 100*worst)
	return nil
}
