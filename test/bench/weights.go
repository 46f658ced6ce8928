package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"tensorturn/domain/safetensors"
)

// A model of matrices of 2^20 parameters whose values are a pattern: a file of any size without a disk.
const (
	matrixValues  = 1 << 20
	patternValues = 1 << 14
)

func matrices(n int, t safetensors.DType) []safetensors.Tensor {
	ts := make([]safetensors.Tensor, n)
	for i := range ts {
		ts[i] = safetensors.Tensor{Name: fmt.Sprintf("layer.%04d", i), DType: t, Shape: []int64{1024, 1024}}
	}
	return ts
}

// pattern gives values around zero with many magnitudes, by seed, as float32 or as float64.
func pattern(seed uint64, t safetensors.DType, scale float64) []byte {
	var b []byte
	x := seed
	for range patternValues {
		x = x*6364136223846793005 + 1442695040888963407
		v := (float64(x>>40)/(1<<24) - 0.5) * scale
		if t == safetensors.F64 {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		} else {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
		}
	}
	return b
}

// vast streams a safetensors file of the tensors whose data are the pattern again and again.
func vast(d *bed, ts []safetensors.Tensor, data []byte) io.Reader {
	var head bytes.Buffer
	w, err := safetensors.NewWriter(&head, ts, nil)
	d.Must(err)
	return io.MultiReader(bytes.NewReader(head.Bytes()), io.LimitReader(&endless{pattern: data}, w.Size()-int64(head.Len())))
}

type endless struct {
	pattern []byte
	at      int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.pattern[e.at:])
	e.at = (e.at + n) % len(e.pattern)
	return n, nil
}
