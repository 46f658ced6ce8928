package merge

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"tensorturn/domain"
	"tensorturn/domain/safetensors"
)

var allCodecs = []Codec{CodecFP32, CodecE3M0, CodecInt8, CodecTwoBit}

// drawn is n values over some binary orders, some of them zero.
func drawn(t *rapid.T, label string, n int) []float32 {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) float32 {
		if rapid.IntRange(0, 9).Draw(t, "zero") == 0 {
			return 0
		}
		return float32(math.Ldexp(rapid.Float64Range(-1, 1).Draw(t, "value"), rapid.IntRange(-20, 4).Draw(t, "order")))
	}), n, n).Draw(t, label)
}

// What each code may lose of a value, by its own definition.
func TestCodesLoseNoMoreThanTheySay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := drawn(rt, "d", rapid.IntRange(1, 2*BlockValues+5).Draw(rt, "n"))
		for _, codec := range allCodecs[1:] {
			code, q := make([]byte, codeBytes(codec, int64(len(d)))), make([]float64, len(d))
			encodeTile(codec, code, d, q)
			for at := 0; at < len(d); at += BlockValues {
				block := d[at:min(at+BlockValues, len(d))]
				scale, _, _ := scaleOf(code[at/BlockValues*blockBytesOf(codec):])
				for i, x := range block {
					lost := math.Abs(float64(x) - q[at+i])
					allowed := 0.0
					switch codec {
					case CodecInt8:
						allowed = float64(scale) / 254
					case CodecE3M0:
						allowed = max(math.Abs(float64(x))*(math.Sqrt2-1), float64(scale)/64)
					case CodecTwoBit:
						allowed = max(0.5*float64(scale), math.Abs(float64(x))-1.5*float64(scale))
					}
					if lost > allowed*(1+1e-6) {
						rt.Fatalf("%s: %v of scale %v reads as %v", codec, x, scale, q[at+i])
					}
					if x == 0 && codec != CodecTwoBit && q[at+i] != 0 {
						rt.Fatalf("%s: a zero reads as %v", codec, q[at+i])
					}
				}
			}
		}
	})
}

// Files are as long as the formula says.
func TestSizes(t *testing.T) {
	for codec, bits := range map[Codec]float64{CodecFP32: 32, CodecInt8: 8.125, CodecE3M0: 4.125, CodecTwoBit: 2.125} {
		if BitsPerValue(codec) != bits {
			t.Errorf("%s has %v bits a value, want %v", codec, BitsPerValue(codec), bits)
		}
		if codec == CodecFP32 {
			continue
		}
		if n := int64(1000 * BlockValues); float64(8*codeBytes(codec, n)) != bits*float64(n) {
			t.Errorf("%s: %d bytes for %d values", codec, codeBytes(codec, n), n)
		}
		if codeBytes(codec, 0) != 0 || codeBytes(codec, 1) != scaleBytes+1 {
			t.Errorf("%s: %d and %d bytes for no and one value", codec, codeBytes(codec, 0), codeBytes(codec, 1))
		}
	}
}

// Bytes that a codec never writes are refused, at the inspection and at the merge.
func TestCodedBytesAreChecked(t *testing.T) {
	base, local := vector(make([]float32, 301)...), vector(append(make([]float32, 300), 1)...)
	size := func(c Codec) int { return int(codeBytes(c, 301)) }
	for name, c := range map[string]struct {
		codec Codec
		at    int // from the end
		bytes []byte
		why   Fault
		note  string
	}{
		"−128":                    {CodecInt8, 1, []byte{0x80}, FaultUnreadable, "−128"},
		"−128 in the first block": {CodecInt8, size(CodecInt8) - 14, []byte{0x80}, FaultUnreadable, "at value 10"},
		"unused bits of 2-bit":    {CodecTwoBit, 1, []byte{0x04}, FaultUnreadable, "unused bits"},
		"unused half byte":        {CodecE3M0, 1, []byte{0x10}, FaultUnreadable, "unused bits"},
		"NaN as scale of int8":    {CodecInt8, size(CodecInt8), []byte{0, 0, 0xc0, 0x7f}, FaultNotFinite, "scale"},
		"Inf as scale of 2-bit":   {CodecTwoBit, size(CodecTwoBit), []byte{0, 0, 0x80, 0x7f}, FaultNotFinite, "scale"},
		"negative scale of 2-bit": {CodecTwoBit, size(CodecTwoBit), []byte{0, 0, 0x80, 0xbf}, FaultUnreadable, "negative scale"},
		"negative zero as scale":  {CodecInt8, size(CodecInt8), []byte{0, 0, 0, 0x80}, FaultUnreadable, "negative scale"},
	} {
		t.Run(name, func(t *testing.T) {
			delta := encode(t, c.codec, base, local)
			bad := edit(delta, c.at, c.bytes...)
			found, err := Inspect(bytes.NewReader(base.bytes(t)), bytes.NewReader(bad), Expect{c.codec, baseID, base.layout()})
			if err != nil || found.Why != c.why || !strings.Contains(found.Note, c.note) {
				t.Fatalf("%+v, %v; want %s with %q", found, err, c.why, c.note)
			}
			_, err = runMerge(base.bytes(t), nil, 1, 0, allGates, tileValues, contribution{bad, c.codec, 1})
			var in *InputError
			if !errors.As(err, &in) || in.Fault != c.why {
				t.Fatalf("the merge says %v", err)
			}
		})
	}
}

// What feedback carries over is exactly what the codes lose: the deltas that were read and the last residual are together
// the differences that were made, and the residual does not grow.
func TestFeedbackLosesNothingForGood(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 400).Draw(rt, "n")
		for _, codec := range allCodecs[1:] {
			made, read := make([]float64, n), make([]float64, n)
			var residual []byte
			base := vector(make([]float32, n)...)
			for range 6 {
				local := drawn(rt, "local", n)
				delta, next, e := encodeFed(t, codec, base, vector(local...), residual, 1)
				code := payload(t, delta)
				got := make([]float64, n)
				for at := 0; at < n; at += BlockValues {
					decodeCode(codec, got[at:min(at+BlockValues, n)], code[at/BlockValues*blockBytesOf(codec):])
				}
				norm := math.Sqrt(squares(0, got))
				if norm != e.Norm {
					rt.Fatalf("%s: the norm is %v, told %v", codec, norm, e.Norm)
				}
				for j := range made {
					made[j] -= float64(local[j])
					read[j] += got[j]
				}
				residual = next
			}
			for j, rest := range floats(t, residual) {
				if diff := math.Abs(made[j] - read[j] - float64(rest)); diff > 1e-4 {
					rt.Fatalf("%s: value %d: made %v, read %v, owed %v", codec, j, made[j], read[j], rest)
				}
			}
		}
	})
}

func TestFeedbackRefuses(t *testing.T) {
	base, local := vector(1, 2, 3), vector(1, 2, 4)
	_, good, _ := encodeFed(t, CodecTwoBit, base, local, nil, 0)
	try := func(codec Codec, residual []byte, keep float64) error {
		f := Feedback{Keep: keep, Next: io.Discard}
		if residual != nil {
			f.Residual = bytes.NewReader(residual)
		}
		_, err := EncodeWithFeedback(codec, bytes.NewReader(base.bytes(t)), bytes.NewReader(local.bytes(t)), baseID, io.Discard, f)
		return err
	}
	if err := try(CodecTwoBit, good, MaxKeep); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"fp32": try(CodecFP32, nil, 1), "no codec": try("zip", nil, 1), "NaN": try(CodecTwoBit, nil, math.NaN()),
		"too much": try(CodecTwoBit, nil, MaxKeep+1), "less than nothing": try(CodecTwoBit, nil, -1),
	} {
		var r *ResidualError
		if domain.KindOf(err) != domain.KindInvalid || errors.As(err, &r) {
			t.Errorf("%s: %v", name, err)
		}
	}
	nan := float32(math.NaN())
	for name, residual := range map[string][]byte{
		"of another layout": vector(1, 2).bytes(t), "cut": good[:len(good)-1], "with a tail": append(bytes.Clone(good), 1), "rubbish": []byte("x"),
		"not finite": vector(1, nan, 3).bytes(t), "one tensor more": model{}.tensor("v", nil, 1).tensor("w", []int64{3}, 1, 2, 3).bytes(t),
	} {
		var r *ResidualError
		if err := try(CodecTwoBit, residual, 1); !errors.As(err, &r) {
			t.Errorf("a residual %s: %v", name, err)
		}
	}
	if (Encoded{Norm: 1, Residual: 3}).RunsAway() || !(Encoded{Norm: 1, Residual: 3.1}).RunsAway() || !(Encoded{Norm: 1, Residual: math.NaN()}).RunsAway() {
		t.Error("a residual may be three times as long as its delta, and no longer")
	}
}

// Tiles and reads are no part of an increment, a residual or what a machine makes of them; S, the increment and the
// residual add up to the master.
func TestWayDown(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 700).Draw(rt, "n")
		codec := rapid.SampledFrom([]Codec{CodecInt8, CodecE3M0}).Draw(rt, "codec")
		base, was, exact := vector(drawn(rt, "base", n)...), downOutcome{}, outcome{}
		for range 3 {
			in := contribution{encode(t, CodecFP32, base, vector(drawn(rt, "local", n)...)), CodecFP32, 7}
			got := mustMergeDown(t, base, was, codec, 0.7, 0.7, in)
			tile := BlockValues * rapid.IntRange(1, 3).Draw(rt, "blocks")
			again, err := mergeDown(t, base, was, codec, 0.7, 0.7, tile, in)
			if err != nil || !bytes.Equal(again.base, got.base) || !bytes.Equal(again.increment, got.increment) || !bytes.Equal(again.residual, got.residual) || again.owed != got.owed {
				rt.Fatalf("tiles of %d give another result: %v", tile, err)
			}
			slow := func(b []byte) io.Reader { return iotest.HalfReader(iotest.OneByteReader(bytes.NewReader(b))) }
			var grown bytes.Buffer
			if err := applyIncrement(codec, slow(base.bytes(t)), slow(got.increment), baseID, &grown, tile); err != nil || !bytes.Equal(grown.Bytes(), got.base) {
				rt.Fatalf("the increment leads elsewhere: %v", err)
			}
			if exact, err = runMerge(base.bytes(t), was.momentum, 0.7, 0.7, allGates, tileValues, in); err != nil {
				rt.Fatal(err)
			}
			want, s, owed := floats(t, exact.base), floats(t, got.base), doubles(t, got.residual)
			before := make([]float64, n)
			if was.residual != nil {
				before = doubles(t, was.residual)
			}
			for j := range s {
				if master := float64(want[j]) + before[j]; math.Abs(master-float64(s[j])-owed[j]) > 1e-5*(1+math.Abs(master)) {
					rt.Fatalf("value %d: master %v, shared %v, owed %v", j, master, s[j], owed[j])
				}
			}
			if !bytes.Equal(exact.momentum, got.momentum) {
				rt.Fatal("the way down has changed the momentum")
			}
			base, was = vector(s...), got
		}
	})
}

// A merge asked for again and again for the same weights gets there: what the code loses comes after.
func TestResidualIsPaidBack(t *testing.T) {
	goal := vector(1, -0.3, 0.0001, 0, 7e-5, 0.25)
	for _, codec := range []Codec{CodecInt8, CodecE3M0} {
		base, was := vector(make([]float32, 6)...), downOutcome{}
		for range 40 {
			was = mustMergeDown(t, base, was, codec, 1, 0, contribution{encode(t, CodecFP32, base, goal), CodecFP32, 1})
			base = vector(floats(t, was.base)...)
		}
		for j, v := range floats(t, was.base) {
			if math.Abs(float64(v-goal.values[0][j])) > 1e-6 {
				t.Errorf("%s: value %d is %v, want %v", codec, j, v, goal.values[0][j])
			}
		}
	}
}

// Statistics of normalisation go down as values, and are in no residual.
func TestStatisticsGoDownAsValues(t *testing.T) {
	base := normalised([]float32{0, 0, 0}, []float32{1, 1, 1}, 1, 2)
	local := normalised([]float32{1, -2, 0.1}, []float32{0, 4, 1e-9}, 1.5, 2)
	for _, codec := range []Codec{CodecInt8, CodecE3M0} {
		got := mustMergeDown(t, base, downOutcome{}, codec, 2, 0.9, contribution{encode(t, CodecTwoBit, base, local), CodecTwoBit, 1})
		for _, file := range [][]byte{got.base, apply(t, codec, base.bytes(t), got.increment)} {
			v := valuesOf(t, file)
			for j, want := range []float32{0, 4, 1e-9} {
				if v["bn.running_var"][j] != want {
					t.Errorf("%s: variance %d is %v, want %v", codec, j, v["bn.running_var"][j], want)
				}
			}
		}
		delta, next, _ := encodeFed(t, CodecTwoBit, base, local, nil, 0)
		if v := valuesOf(t, next)["bn.running_var"]; v[0] != 0 || v[1] != 0 || v[2] != 0 {
			t.Errorf("a delta owes %v of its statistics", v)
		}
		if _, _, e := encodeFed(t, CodecTwoBit, base, local, next, 1); e.Norm == 0 || len(delta) == 0 {
			t.Error("nothing is coded")
		}
	}
}

func TestIncrementRefuses(t *testing.T) {
	base := vector(1, 2, 3)
	got := mustMergeDown(t, base, downOutcome{}, CodecInt8, 1, 0, contribution{encode(t, CodecFP32, base, vector(1, 2, 4)), CodecFP32, 1})
	inc := got.increment
	for name, c := range map[string]struct {
		base, increment []byte
		codec           Codec
		from            domain.Digest
		why             Fault
	}{
		"of another base":   {base.bytes(t), inc, CodecInt8, domain.Digest(strings.Repeat("1", 64)), FaultBase},
		"of another layout": {vector(1, 2).bytes(t), inc, CodecInt8, baseID, FaultLayout},
		"of another codec":  {base.bytes(t), inc, CodecE3M0, baseID, FaultUnreadable},
		"cut":               {base.bytes(t), inc[:len(inc)-1], CodecInt8, baseID, FaultUnreadable},
		"with a tail":       {base.bytes(t), append(bytes.Clone(inc), 1), CodecInt8, baseID, FaultUnreadable},
		"−128":              {base.bytes(t), edit(inc, 1, 0x80), CodecInt8, baseID, FaultUnreadable},
		"too far":           {vector(-math.MaxFloat32, 2, 3).bytes(t), edit(inc, 7, 0xff, 0xff, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f), CodecInt8, baseID, FaultNotFinite},
	} {
		err := ApplyIncrement(c.codec, bytes.NewReader(c.base), bytes.NewReader(c.increment), c.from, io.Discard)
		var in *IncrementError
		if !errors.As(err, &in) || in.Fault != c.why || domain.KindOf(err) != domain.KindIntegrity {
			t.Errorf("%s: %v, want %s", name, err, c.why)
		}
	}
	for _, codec := range []Codec{CodecFP32, CodecTwoBit, "", "zip"} {
		if err := ApplyIncrement(codec, bytes.NewReader(nil), bytes.NewReader(nil), baseID, io.Discard); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("codec %q: %v", codec, err)
		}
	}
	if _, err := mergeDown(t, base, downOutcome{}, CodecTwoBit, 1, 0, tileValues, contribution{encode(t, CodecFP32, base, base), CodecFP32, 1}); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("2-bit goes down: %v", err)
	}
	far := vector(-math.MaxFloat32, 1)
	if _, err := mergeDown(t, far, downOutcome{}, CodecInt8, 1, 0, tileValues, contribution{encode(t, CodecFP32, far, vector(math.MaxFloat32, 1)), CodecFP32, 1}); domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), `"w" would not be finite at value 0`) {
		t.Errorf("a step beyond float32: %v", err)
	}
}

// An increment is read from a store: whatever stands there, it is refused or gives finite weights.
func FuzzIncrement(f *testing.F) {
	base := model{}.tensor("a", []int64{3}, 1, 2, 3).tensor("b", []int64{300}, make([]float32, 300)...)
	local := model{}.tensor("a", []int64{3}, 1, 2, 4).tensor("b", []int64{300}, make([]float32, 300)...)
	for _, codec := range []Codec{CodecInt8, CodecE3M0} {
		f.Add(mustMergeDown(f, base, downOutcome{}, codec, 1, 0, contribution{encode(f, CodecFP32, base, local), CodecFP32, 1}).increment, codec == CodecInt8)
	}
	f.Fuzz(func(t *testing.T, increment []byte, fine bool) {
		codec := CodecE3M0
		if fine {
			codec = CodecInt8
		}
		var out bytes.Buffer
		err := ApplyIncrement(codec, bytes.NewReader(base.bytes(t)), bytes.NewReader(increment), baseID, &out)
		if err != nil {
			var in *IncrementError
			if !errors.As(err, &in) || len(in.Note) > domain.MaxReasonLength {
				t.Fatal(err)
			}
			return
		}
		r, err := safetensors.NewReader(bytes.NewReader(out.Bytes()))
		if err != nil || safetensors.Compare(base.tensors, r.Tensors()) != nil {
			t.Fatalf("it gives no weights: %v", err)
		}
		for _, v := range floats(t, out.Bytes()) {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				t.Fatal("it gives weights that are not finite")
			}
		}
	})
}
