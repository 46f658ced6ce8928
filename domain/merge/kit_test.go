package merge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/safetensors"
)

// model is a set of named float32 tensors in canonical order.
type model struct {
	tensors []safetensors.Tensor
	values  [][]float32
}

// tensor adds a tensor; names must come in ascending order.
func (m model) tensor(name string, shape []int64, values ...float32) model {
	m.tensors = append(m.tensors[:len(m.tensors):len(m.tensors)], safetensors.Tensor{Name: name, DType: safetensors.F32, Shape: shape})
	m.values = append(m.values[:len(m.values):len(m.values)], values)
	return m
}

// vector is a model of one tensor.
func vector(values ...float32) model {
	return model{}.tensor("w", []int64{int64(len(values))}, values...)
}

func (m model) layout() domain.Digest { return safetensors.LayoutDigest(m.tensors) }

func (m model) bytes(t testing.TB) []byte {
	t.Helper()
	var data []byte
	for _, vs := range m.values {
		for _, v := range vs {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
	}
	return pack(t, m.tensors, nil, data)
}

// pack makes a safetensors file.
func pack(t testing.TB, ts []safetensors.Tensor, meta map[string]string, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, err := safetensors.NewWriter(&buf, ts, meta)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// payload is the data of a safetensors file, all tensors in a row.
func payload(t testing.TB, file []byte) []byte {
	t.Helper()
	r, err := safetensors.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for {
		_, d, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(d)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
}

// floats reads the values of an F32 file.
func floats(t testing.TB, file []byte) []float32 {
	t.Helper()
	raw := payload(t, file)
	vs := make([]float32, len(raw)/4)
	for i := range vs {
		vs[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return vs
}

// doubles reads the values of an F64 file.
func doubles(t testing.TB, file []byte) []float64 {
	t.Helper()
	raw := payload(t, file)
	vs := make([]float64, len(raw)/8)
	for i := range vs {
		vs[i] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))
	}
	return vs
}

const baseID = domain.Digest("ba5e00000000000000000000000000000000000000000000000000000000ba5e")

func encode(t testing.TB, c Codec, base, local model) []byte {
	t.Helper()
	var buf bytes.Buffer
	if _, err := EncodeDelta(c, bytes.NewReader(base.bytes(t)), bytes.NewReader(local.bytes(t)), baseID, &buf); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// contribution is one input of a merge in a test.
type contribution struct {
	delta   []byte
	codec   Codec
	samples int64
}

// outcome is everything a merge gives.
type outcome struct {
	base, momentum []byte
	norm           float64
}

// runMerge merges with the given gates and tile size.
func runMerge(base, momentum []byte, eta, mu float64, g gates, tile int, in ...contribution) (outcome, error) {
	var nb, nm bytes.Buffer
	job := Job{Base: bytes.NewReader(base), BaseDigest: baseID, Eta: eta, Mu: mu, NextBase: &nb, NextMomentum: &nm}
	if momentum != nil {
		job.Momentum = bytes.NewReader(momentum)
	}
	for _, c := range in {
		job.Inputs = append(job.Inputs, Input{Delta: bytes.NewReader(c.delta), Codec: c.codec, Samples: c.samples})
	}
	r, err := mergeTiles(job, g, tile)
	return outcome{nb.Bytes(), nm.Bytes(), r.StepNorm}, err
}

func mustMerge(t testing.TB, base, momentum []byte, eta, mu float64, in ...contribution) outcome {
	t.Helper()
	out, err := runMerge(base, momentum, eta, mu, allGates, tileValues, in...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
