package merge

import (
	"bytes"
	"io"
	"math"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"tensorturn/domain/safetensors"
)

// finite draws any float32 that is not NaN or Inf, denormals and zeros as likely as the rest.
var finite = rapid.Custom(func(t *rapid.T) float32 {
	exponent := rapid.SampledFrom([]uint32{0, 0, 1, 2, 100, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 200, 253}).Draw(t, "exponent")
	return math.Float32frombits(rapid.Uint32Range(0, 1).Draw(t, "sign")<<31 | exponent<<23 | rapid.Uint32Range(0, 1<<23-1).Draw(t, "significand"))
})

// small draws a weight as models have them.
var small = rapid.Custom(func(t *rapid.T) float32 { return float32(rapid.Float64Range(-2, 2).Draw(t, "w")) })

// level by comparisons with the boundaries scale·2^(k−0.5), one after another.
func levelByComparing(x, scale float32) int {
	v := math.Abs(float64(x))
	if v == 0 {
		return 0
	}
	for l := topLevel; l > 0; l-- {
		if v >= math.Ldexp(float64(scale)*sqrtHalf, l-topLevel) {
			return l
		}
	}
	return 0
}

func TestNibbleIsTheLevelByComparing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SliceOfN(finite, 1, 40).Draw(t, "d")
		scale := float32(0)
		for _, x := range d {
			scale = max(scale, float32(math.Abs(float64(x))))
		}
		code := encodeAll(d)
		for i, x := range d {
			c := code[scaleBytes+i/2] >> (4 * (i % 2)) & 15
			want := byte(levelByComparing(x, scale))
			if want > 0 && x < 0 {
				want |= 8
			}
			if c != want {
				t.Fatalf("value %d, %v at scale %v: nibble %d, want %d", i, x, scale, c, want)
			}
		}
	})
}

func TestE3M0ErrorBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SliceOfN(finite, 1, 2*BlockValues+3).Draw(t, "d")
		code := encodeAll(d)
		got := decodeAll(code, len(d))
		again := make([]float32, len(d))
		exact := true
		for at := 0; at < len(d); at += BlockValues {
			scale, _, _ := scaleOf(code[at/BlockValues*blockBytes:])
			for i := at; i < min(at+BlockValues, len(d)); i++ {
				x, y := float64(d[i]), got[i]
				switch {
				case x == 0 && y != 0:
					t.Fatalf("zero %d became %v", i, y)
				case y == 0 && math.Abs(x) > float64(scale)*math.Exp2(-6.5)*(1+1e-15):
					t.Fatalf("value %d, %v at scale %v, was dropped", i, x, scale)
				case y != 0 && (y/x < math.Sqrt(0.5)*(1-1e-15) || y/x > math.Sqrt2*(1+1e-15)):
					t.Fatalf("value %d, %v at scale %v, became %v", i, x, scale, y)
				}
				again[i] = float32(y)
				exact = exact && float64(again[i]) == y
			}
		}
		if exact && !bytes.Equal(encodeAll(again), code) {
			t.Fatal("coding what was decoded gives another code")
		}
	})
}

// draw makes a base and some contributions to it.
func draw(t *rapid.T, tb testing.TB, maxValues int) (base model, in []contribution) {
	n := rapid.IntRange(1, maxValues).Draw(t, "values")
	weights := rapid.SliceOfN(small, n, n)
	base = model{}.tensor("a", []int64{int64(n)}, weights.Draw(t, "a")...).tensor("b", nil, small.Draw(t, "b")).tensor("c", []int64{0, 2})
	for range rapid.IntRange(1, 5).Draw(t, "inputs") {
		local := model{tensors: base.tensors, values: [][]float32{weights.Draw(t, "la"), {small.Draw(t, "lb")}, nil}}
		codec := rapid.SampledFrom([]Codec{CodecFP32, CodecE3M0}).Draw(t, "codec")
		in = append(in, contribution{encode(tb, codec, base, local), codec, rapid.Int64Range(1, 100_000).Draw(t, "samples")})
	}
	return base, in
}

// The result is a function of the canonical order. Another order may only move the last bits, and none with two inputs.
func TestOrderOfInputs(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		base, in := draw(rt, t, 20)
		perm := rapid.Permutation(in).Draw(rt, "order")
		a := mustMerge(t, base.bytes(t), nil, 0.7, 0.9, in...)
		b := mustMerge(t, base.bytes(t), nil, 0.7, 0.9, perm...)
		if again := mustMerge(t, base.bytes(t), nil, 0.7, 0.9, in...); !bytes.Equal(again.base, a.base) || !bytes.Equal(again.momentum, a.momentum) {
			rt.Fatal("the same job gave other bits")
		}
		ma, mb := doubles(t, a.momentum), doubles(t, b.momentum)
		for i := range ma {
			if math.Abs(ma[i]-mb[i]) > 1e-14 {
				rt.Fatalf("momentum %d: %v in one order, %v in another", i, ma[i], mb[i])
			}
		}
		if len(in) <= 2 && same64(ma, mb) >= 0 {
			rt.Fatal("two inputs do not commute")
		}
	})
}

// Tiles and the size of reads are no part of the result.
func TestStreamingEqualsWhole(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		base, in := draw(rt, t, 900)
		first := mustMerge(t, base.bytes(t), nil, 0.7, 0.9, in...)
		want, err := runMerge(base.bytes(t), first.momentum, 0.7, 0.9, allGates, tileValues, in...)
		if err != nil {
			rt.Fatal(err)
		}
		tile := BlockValues * rapid.IntRange(1, 3).Draw(rt, "blocks")
		got, err := runMerge(base.bytes(t), first.momentum, 0.7, 0.9, allGates, tile, in...)
		if err != nil || !bytes.Equal(got.base, want.base) || !bytes.Equal(got.momentum, want.momentum) || got.norm != want.norm {
			rt.Fatalf("tiles of %d give another result, %v", tile, err)
		}
		expect := Expect{in[0].codec, baseID, base.layout()}
		slow := func(b []byte) io.Reader { return iotest.HalfReader(iotest.OneByteReader(bytes.NewReader(b))) }
		whole, err := Inspect(bytes.NewReader(base.bytes(t)), bytes.NewReader(in[0].delta), expect)
		if err != nil || whole.Why != "" {
			rt.Fatal(whole, err)
		}
		tiled, err := inspect(slow(base.bytes(t)), slow(in[0].delta), expect, allGates, tile)
		if err != nil || tiled != whole {
			rt.Fatalf("inspected %v and %v, %v", whole, tiled, err)
		}
		// Coding again from a byte at a time gives the same file and norm.
		local := base
		var again, once bytes.Buffer
		n1, err1 := encodeDelta(in[0].codec, slow(base.bytes(t)), slow(local.bytes(t)), baseID, &again, nil, tile)
		n2, err2 := EncodeDelta(in[0].codec, bytes.NewReader(base.bytes(t)), bytes.NewReader(local.bytes(t)), baseID, &once)
		if err1 != nil || err2 != nil || n1 != n2 || !bytes.Equal(again.Bytes(), once.Bytes()) {
			rt.Fatalf("encoded differently: %v %v %v %v", n1, n2, err1, err2)
		}
	})
}

// The agent's norm is the hub's norm, bit for bit.
func TestNormsAgree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 600).Draw(rt, "n")
		base, local := vector(rapid.SliceOfN(finite, n, n).Draw(rt, "base")...), vector(rapid.SliceOfN(finite, n, n).Draw(rt, "local")...)
		for _, codec := range allCodecs {
			var buf bytes.Buffer
			norm, err := EncodeDelta(codec, bytes.NewReader(base.bytes(t)), bytes.NewReader(local.bytes(t)), baseID, &buf)
			if err != nil {
				rt.Fatal(err)
			}
			found, err := Inspect(bytes.NewReader(base.bytes(t)), &buf, Expect{codec, baseID, safetensors.LayoutDigest(base.tensors)})
			if err != nil || found.Why != "" || found.Norm != norm {
				rt.Fatalf("%s: encoded %v, found %+v, %v", codec, norm, found, err)
			}
		}
	})
}
