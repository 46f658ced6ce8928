package merge

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"tensorturn/domain/safetensors"
)

// normalised is a layer with its statistics, between two weights so that tensors on both sides are read in step.
func normalised(mean, variance []float32, w ...float32) model {
	n := int64(len(mean))
	return model{}.tensor("a", []int64{int64(len(w))}, w...).tensor("bn.running_mean", []int64{n}, mean...).tensor("bn.running_var", []int64{n}, variance...).
		tensor("z", []int64{int64(len(w))}, w...)
}

// valuesOf reads the F32 data of a file, tensor by tensor.
func valuesOf(t *testing.T, file []byte) map[string][]float32 {
	t.Helper()
	r, err := safetensors.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	out, data := map[string][]float32{}, file
	size := int64(0)
	for _, tensor := range r.Tensors() {
		b, err := tensor.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		size += b
	}
	data = file[int64(len(file))-size:]
	for _, tensor := range r.Tensors() {
		n, _ := tensor.Count()
		for range n {
			out[tensor.Name] = append(out[tensor.Name], math.Float32frombits(binary.LittleEndian.Uint32(data)))
			data = data[4:]
		}
	}
	return out
}

// Statistics are sample-weighted means of values in either codec, whatever the outer step is; weights beside them take
// the outer step as if there were no statistics.
func TestStatisticsAreMeansOfValues(t *testing.T) {
	base := normalised([]float32{0, 0, 0}, []float32{1, 1, 1}, 1, 2)
	one := normalised([]float32{1, -2, 0.1}, []float32{0, 4, 1e-9}, 1.5, 2)
	two := normalised([]float32{4, 1, 0.1}, []float32{0, 1, 1e-9}, 1, 3)
	for _, codec := range []Codec{CodecFP32, CodecE3M0} {
		a, b := encode(t, codec, base, one), encode(t, codec, base, two)
		got := mustMerge(t, base.bytes(t), nil, 2, 0.9, contribution{a, codec, 100}, contribution{b, codec, 200})
		again := mustMerge(t, got.base, got.momentum, 2, 0.9, contribution{encodeAgainst(t, codec, got.base, one), codec, 1})
		v := valuesOf(t, got.base)
		for j, want := range []float32{3, 0, 0.1} {
			if v["bn.running_mean"][j] != want {
				t.Errorf("%s: mean %d is %v, want %v", codec, j, v["bn.running_mean"][j], want)
			}
		}
		for j, want := range []float32{0, 2, 1e-9} {
			if v["bn.running_var"][j] != want {
				t.Errorf("%s: variance %d is %v, want %v", codec, j, v["bn.running_var"][j], want)
			}
		}
		if v := valuesOf(t, again.base); v["bn.running_mean"][0] != 1 || v["bn.running_var"][1] != 4 {
			t.Errorf("%s: the second round gives %v: momentum has crept in", codec, v)
		}
		plain := func(m model) model {
			return model{}.tensor("a", []int64{2}, m.values[0]...).tensor("z", []int64{2}, m.values[3]...)
		}
		want := mustMerge(t, plain(base).bytes(t), nil, 2, 0.9, contribution{encode(t, codec, plain(base), plain(one)), codec, 100}, contribution{encode(t, codec, plain(base), plain(two)), codec, 200})
		for name, values := range valuesOf(t, want.base) {
			for j := range values {
				if v[name][j] != values[j] {
					t.Errorf("%s: weight %s %d is %v beside statistics and %v without", codec, name, j, v[name][j], values[j])
				}
			}
		}
	}
}

// The norm of a delta is that of its weights; encoder and inspection agree.
func TestStatisticsHaveNoNorm(t *testing.T) {
	base := normalised([]float32{0}, []float32{1}, 1, 2)
	for _, codec := range []Codec{CodecFP32, CodecE3M0} {
		local := normalised([]float32{1000}, []float32{5000}, 1, 1)
		var out bytes.Buffer
		norm, err := EncodeDelta(codec, bytes.NewReader(base.bytes(t)), bytes.NewReader(local.bytes(t)), baseID, &out)
		if err != nil {
			t.Fatal(err)
		}
		found, err := Inspect(bytes.NewReader(base.bytes(t)), bytes.NewReader(out.Bytes()), Expect{Codec: codec, Base: baseID, Layout: base.layout()})
		if err != nil || found.Why != "" || found.Norm != norm || math.Abs(norm-math.Sqrt2) > 1e-9 {
			t.Errorf("%s: encoded %v, %+v, %v", codec, norm, found, err)
		}
	}
}

// A variance below zero, or a value that is not finite, refuses the delta.
func TestBadStatisticsAreRefused(t *testing.T) {
	base := normalised([]float32{0}, []float32{1}, 1, 2)
	for _, codec := range []Codec{CodecFP32, CodecE3M0} {
		good := encode(t, codec, base, normalised([]float32{0.125}, []float32{0.375}, 1, 2))
		for mark, c := range map[float32]struct {
			with float32
			why  Fault
			note string
		}{0.375: {-0.375, FaultUnreadable, "negative variance at value 0"}, 0.125: {float32(math.NaN()), FaultNotFinite, "bn.running_mean"}} {
			from, to := binary.LittleEndian.AppendUint32(nil, math.Float32bits(mark)), binary.LittleEndian.AppendUint32(nil, math.Float32bits(c.with))
			bad := bytes.Replace(good, from, to, 1)
			found, err := Inspect(bytes.NewReader(base.bytes(t)), bytes.NewReader(bad), Expect{Codec: codec, Base: baseID, Layout: base.layout()})
			if err != nil || found.Why != c.why || !strings.Contains(found.Note, c.note) {
				t.Errorf("%s, %v: %+v, %v", codec, c.with, found, err)
			}
		}
	}
}

// encodeAgainst is encode with a base that is already a file.
func encodeAgainst(t *testing.T, codec Codec, base []byte, local model) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := EncodeDelta(codec, bytes.NewReader(base), bytes.NewReader(local.bytes(t)), baseID, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
