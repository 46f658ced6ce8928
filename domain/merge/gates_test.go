package merge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"tensorturn/domain"
	"tensorturn/domain/safetensors"
)

var (
	theBase  = model{}.tensor("bias", []int64{2}, 0.5, -0.5).tensor("w", []int64{2, 3}, 1, 2, 3, 4, 5, 6)
	theLocal = model{}.tensor("bias", []int64{2}, 0.25, -0.5).tensor("w", []int64{2, 3}, 1.5, 2, 2.75, 4, 5, 6.125)
)

// edit changes the value at index i of a delta's payload, counted from the end of the file in bytes.
func edit(file []byte, fromEnd int, b ...byte) []byte {
	c := bytes.Clone(file)
	copy(c[len(c)-fromEnd:], b)
	return c
}

func word(v float32) []byte { return binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)) }

func TestInspectFinds(t *testing.T) {
	fp32, e3m0 := encode(t, CodecFP32, theBase, theLocal), encode(t, CodecE3M0, theBase, theLocal)
	remake := func(ts []safetensors.Tensor, codec, base, layout string, data int) []byte {
		return pack(t, ts, map[string]string{metaCodec: codec, metaBase: base, metaLayout: layout}, make([]byte, data))
	}
	layout := string(theBase.layout())
	odd := model{}.tensor("w", []int64{3}, 1, 2, 3)
	for name, c := range map[string]struct {
		codec Codec
		delta []byte
		base  model
		why   Fault
		note  string // part of it
	}{
		"fp32 good":              {CodecFP32, fp32, theBase, "", ""},
		"e3m0 good":              {CodecE3M0, e3m0, theBase, "", ""},
		"empty":                  {CodecFP32, nil, theBase, FaultUnreadable, "cut off"},
		"truncated header":       {CodecFP32, fp32[:40], theBase, FaultUnreadable, "cut off"},
		"truncated data":         {CodecFP32, fp32[:len(fp32)-1], theBase, FaultUnreadable, `"w"`},
		"truncated code":         {CodecE3M0, e3m0[:len(e3m0)-1], theBase, FaultUnreadable, `"w"`},
		"bytes behind":           {CodecFP32, append(bytes.Clone(fp32), 0), theBase, FaultUnreadable, "behind"},
		"not safetensors":        {CodecFP32, []byte(strings.Repeat("x", 500)), theBase, FaultUnreadable, "header"},
		"plain weights":          {CodecFP32, theLocal.bytes(t), theBase, FaultUnreadable, `codec is ""`},
		"another codec":          {CodecFP32, e3m0, theBase, FaultUnreadable, `codec is "e3m0"`},
		"another base":           {CodecFP32, remake(theBase.tensors, "fp32", strings.Repeat("0", 64), layout, 32), theBase, FaultBase, "0000"},
		"layout in the metadata": {CodecFP32, remake(theBase.tensors, "fp32", string(baseID), strings.Repeat("1", 64), 32), theBase, FaultLayout, "1111"},
		"a name": {CodecFP32, remake([]safetensors.Tensor{{Name: "bias", DType: "F32", Shape: []int64{2}}, {Name: "x", DType: "F32", Shape: []int64{2, 3}}},
			"fp32", string(baseID), layout, 32), theBase, FaultLayout, `"x"`},
		"a shape": {CodecFP32, remake([]safetensors.Tensor{{Name: "bias", DType: "F32", Shape: []int64{2}}, {Name: "w", DType: "F32", Shape: []int64{3, 2}}},
			"fp32", string(baseID), layout, 32), theBase, FaultLayout, "[3,2]"},
		"a dtype": {CodecFP32, remake([]safetensors.Tensor{{Name: "bias", DType: "F32", Shape: []int64{2}}, {Name: "w", DType: "I32", Shape: []int64{2, 3}}},
			"fp32", string(baseID), layout, 32), theBase, FaultLayout, "I32"},
		"a tensor too few":      {CodecFP32, remake(theBase.tensors[:1], "fp32", string(baseID), layout, 8), theBase, FaultLayout, "1 tensors, wanted 2"},
		"length of the code":    {CodecE3M0, remake([]safetensors.Tensor{{Name: "bias", DType: "U8", Shape: []int64{5}}, {Name: "w", DType: "U8", Shape: []int64{8}}}, "e3m0", string(baseID), layout, 13), theBase, FaultLayout, "[8]"},
		"NaN":                   {CodecFP32, edit(fp32, 8, word(float32(math.NaN()))...), theBase, FaultNotFinite, `"w" is not finite at value 4`},
		"Inf":                   {CodecFP32, edit(fp32, 32, word(float32(math.Inf(-1)))...), theBase, FaultNotFinite, `"bias" is not finite at value 0`},
		"NaN scale":             {CodecE3M0, edit(e3m0, 7, word(float32(math.NaN()))...), theBase, FaultNotFinite, `"w" has a scale that is not finite at value 0`},
		"Inf scale":             {CodecE3M0, edit(e3m0, 12, word(float32(math.Inf(1)))...), theBase, FaultNotFinite, `"bias"`},
		"negative scale":        {CodecE3M0, edit(e3m0, 7, word(-1)...), theBase, FaultUnreadable, "negative scale"},
		"half byte that is not": {CodecE3M0, edit(encode(t, CodecE3M0, odd, odd), 1, 0x10), odd, FaultUnreadable, "unused"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := Inspect(bytes.NewReader(c.base.bytes(t)), bytes.NewReader(c.delta), Expect{c.codec, baseID, c.base.layout()})
			if err != nil {
				t.Fatal(err)
			}
			if found.Why != c.why || !strings.Contains(found.Note, c.note) || len(found.Note) > domain.MaxReasonLength {
				t.Fatalf("found %+v, want %q with %q", found, c.why, c.note)
			}
			if c.why == "" && found.Norm <= 0 {
				t.Fatalf("norm %v", found.Norm)
			}
			in := contribution{c.delta, c.codec, 5}
			good := contribution{encode(t, CodecFP32, c.base, c.base), CodecFP32, 5}
			_, err = runMerge(c.base.bytes(t), nil, 1, 0, allGates, tileValues, good, in)
			var input *InputError
			if c.why == "" && err != nil || c.why != "" && (!errors.As(err, &input) || input.Index != 1 || input.Fault != c.why) {
				t.Fatalf("the merge says %v", err)
			}
			if c.why != "" && domain.KindOf(err) != domain.KindIntegrity {
				t.Fatalf("kind %s", domain.KindOf(err))
			}
		})
	}
}

// What time may heal, and what is not the delta's fault, is no finding.
func TestInspectTellsFindingsFromErrors(t *testing.T) {
	good := encode(t, CodecE3M0, theBase, theLocal)
	want := Expect{CodecE3M0, baseID, theBase.layout()}
	gone := domain.Unavailable("get part", "link lost", "", nil)
	for cut := range good {
		broken := io.MultiReader(bytes.NewReader(good[:cut]), iotest.ErrReader(gone))
		if found, err := Inspect(bytes.NewReader(theBase.bytes(t)), broken, want); !errors.Is(err, gone) || found.Why != "" {
			t.Fatalf("link lost at %d: %+v, %v", cut, found, err)
		}
		missing := io.MultiReader(bytes.NewReader(good[:cut]), iotest.ErrReader(domain.NotFound("get part", "part abc is gone", "")))
		if found, err := Inspect(bytes.NewReader(theBase.bytes(t)), missing, want); err != nil || found.Why != FaultUnreadable || !strings.Contains(found.Note, "abc") {
			t.Fatalf("part missing at %d: %+v, %v", cut, found, err)
		}
	}
	base := theBase.bytes(t)
	if found, err := Inspect(bytes.NewReader(base[:len(base)-1]), bytes.NewReader(good), want); err == nil || found.Why != "" {
		t.Fatalf("base cut: %+v, %v", found, err)
	}
	want.Layout = domain.Digest(strings.Repeat("2", 64))
	if found, err := Inspect(bytes.NewReader(base), bytes.NewReader(good), want); domain.KindOf(err) != domain.KindIntegrity || found.Why != "" {
		t.Fatalf("base of another layout: %+v, %v", found, err)
	}
}

// Each gate holds something back: with it taken away the damage is done.
func TestGatesCanFail(t *testing.T) {
	plain := contribution{encode(t, CodecFP32, theBase, theLocal), CodecFP32, 10}
	merge := func(g gates, in ...contribution) ([]float32, error) {
		out, err := runMerge(theBase.bytes(t), nil, 1, 0, g, tileValues, in...)
		if err != nil {
			return nil, err
		}
		return floats(t, out.base), nil
	}
	refused := func(t *testing.T, in contribution, why Fault) {
		t.Helper()
		_, err := merge(allGates, plain, in)
		var input *InputError
		if !errors.As(err, &input) || input.Index != 1 || input.Fault != why {
			t.Fatalf("with the gate: %v, want a refusal of delta 1: %s", err, why)
		}
	}

	t.Run("base", func(t *testing.T) {
		var buf bytes.Buffer
		other := domain.Digest(strings.Repeat("3", 64))
		moved := model{}.tensor("bias", []int64{2}, 9, 9).tensor("w", []int64{2, 3}, 9, 9, 9, 9, 9, 9)
		if _, err := EncodeDelta(CodecE3M0, bytes.NewReader(moved.bytes(t)), bytes.NewReader(theLocal.bytes(t)), other, &buf); err != nil {
			t.Fatal(err)
		}
		in := contribution{buf.Bytes(), CodecE3M0, 10}
		refused(t, in, FaultBase)
		g := allGates
		g.base = false
		got, err := merge(g, in)
		if err != nil || got[0] > -7 {
			t.Fatalf("without the gate the model should be far off its place: %v, %v", got, err)
		}
	})
	t.Run("layout", func(t *testing.T) {
		turned := []safetensors.Tensor{{Name: "bias", DType: "F32", Shape: []int64{2}}, {Name: "w", DType: "F32", Shape: []int64{3, 2}}}
		in := contribution{pack(t, turned, deltaMetadata(CodecFP32, baseID, safetensors.LayoutDigest(turned)), payload(t, theLocal.bytes(t))), CodecFP32, 10}
		refused(t, in, FaultLayout)
		g := allGates
		g.layout = false
		if got, err := merge(g, in); err != nil || got[3] != 2 {
			t.Fatalf("without the gate a transposed matrix is averaged value by value: %v, %v", got, err)
		}
	})
	t.Run("finite", func(t *testing.T) {
		in := contribution{edit(plain.delta, 4, word(float32(math.NaN()))...), CodecFP32, 10}
		refused(t, in, FaultNotFinite)
		g := allGates
		g.finite = false
		_, err := merge(g, plain, in)
		var input *InputError
		if domain.KindOf(err) != domain.KindInvalid || errors.As(err, &input) || !strings.Contains(err.Error(), `"w" would not be finite at value 5`) {
			t.Fatalf("without the gate one delta should cost the round its merge: %v", err)
		}
		g.result = false
		if got, err := merge(g, plain, in); err != nil || got[7] == got[7] {
			t.Fatalf("without the last gate too the weights should be NaN: %v, %v", got, err)
		}
	})
	t.Run("truncated", func(t *testing.T) {
		long := make([]float32, 3*tileValues)
		base := vector(long...)
		delta := encode(t, CodecFP32, base, base)
		cut := contribution{delta[:len(delta)-4], CodecFP32, 1}
		if found, err := Inspect(bytes.NewReader(base.bytes(t)), bytes.NewReader(cut.delta), Expect{CodecFP32, baseID, base.layout()}); err != nil || found.Why != FaultUnreadable {
			t.Fatalf("with the inspection: %+v, %v", found, err)
		}
		out, err := runMerge(base.bytes(t), nil, 1, 0, allGates, tileValues, contribution{delta, CodecFP32, 1}, cut)
		var input *InputError
		if !errors.As(err, &input) || input.Index != 1 || len(out.base) < 4*tileValues {
			t.Fatalf("without it the merge should find out only after it has written %d bytes: %v", len(out.base), err)
		}
	})
}
