package merge

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"runtime"
	"testing"

	"tensorturn/domain/safetensors"
)

// endless gives a pattern again and again, as fast as memory: a delta of any size without a disk.
type endless struct {
	pattern []byte
	at      int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.pattern[e.at:])
	e.at = (e.at + n) % len(e.pattern)
	return n, nil
}

// vast is a safetensors file whose data are a pattern.
func vast(tb testing.TB, ts []safetensors.Tensor, meta map[string]string, pattern []byte) io.Reader {
	tb.Helper()
	var head bytes.Buffer
	w, err := safetensors.NewWriter(&head, ts, meta)
	if err != nil {
		tb.Fatal(err)
	}
	return io.MultiReader(bytes.NewReader(head.Bytes()), io.LimitReader(&endless{pattern: pattern}, w.Size()-int64(head.Len())))
}

// large is a model of many matrices of 2^20 parameters, which is a whole number of patterns.
type large struct {
	weights []safetensors.Tensor
	base    []byte // patterns of whole blocks
	code    []byte
	double  []byte
}

const patternValues = 64 * BlockValues

func newLarge(matrices int) large {
	l := large{}
	for i := range matrices {
		l.weights = append(l.weights, safetensors.Tensor{Name: fmt.Sprintf("layer.%04d", i), DType: safetensors.F32, Shape: []int64{1024, 1024}})
	}
	x, d := uint64(1), make([]float32, patternValues)
	for i := range d {
		x = x*6364136223846793005 + 1442695040888963407
		v := (float64(x>>40)/(1<<24) - 0.5) * 0.1
		d[i] = float32(v * v * v)
		l.base = binary.LittleEndian.AppendUint32(l.base, math.Float32bits(float32(v)))
		l.double = binary.LittleEndian.AppendUint64(l.double, math.Float64bits(v*0.01))
	}
	l.code = encodeAll(d)
	return l
}

// job gives a merge of k deltas that reads patterns.
func (l large) job(tb testing.TB, codec Codec, k int) Job {
	tb.Helper()
	j := Job{Base: vast(tb, l.weights, nil, l.base), BaseDigest: baseID, Momentum: vast(tb, momentumTensors(l.weights), nil, l.double),
		Eta: 0.7, Mu: 0.9, NextBase: io.Discard, NextMomentum: io.Discard}
	ts, err := deltaTensors(codec, l.weights)
	if err != nil {
		tb.Fatal(err)
	}
	pattern := l.base
	if codec == CodecE3M0 {
		pattern = l.code
	}
	for i := range k {
		meta := deltaMetadata(codec, baseID, safetensors.LayoutDigest(l.weights))
		j.Inputs = append(j.Inputs, Input{Delta: vast(tb, ts, meta, pattern), Codec: codec, Samples: int64(1000 + i)})
	}
	return j
}

// The memory of a merge does not depend on the number of parameters: 8 deltas of a million parameters, 32 MiB in
// fp32, cost less than half of one of them.
func TestMemoryIsBounded(t *testing.T) {
	for _, codec := range []Codec{CodecFP32, CodecE3M0} {
		l := newLarge(1)
		job := l.job(t, codec, 8)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Merge(job); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 2<<20 {
			t.Errorf("%s: allocated %d KiB in all", codec, took>>10)
		}
	}
}
