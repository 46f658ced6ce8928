package merge

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"tensorturn/domain"
	"tensorturn/domain/safetensors"
)

func TestEncodeRefuses(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	w := func(vs ...float32) []byte { return vector(vs...).bytes(t) }
	unsorted := bytes.Replace(model{}.tensor("a", nil, 1).tensor("b", nil, 2).bytes(t), []byte(`"a"`), []byte(`"c"`), 1)
	for name, c := range map[string]struct {
		codec       Codec
		base, local []byte
		why         string
	}{
		"no codec":       {"zip", w(1), w(1), `no codec "zip"`},
		"NaN":            {CodecE3M0, w(1, 2), w(1, nan), `local weights: tensor "w" is not finite at value 1`},
		"Inf, exact":     {CodecFP32, w(1, 2), w(inf, 2), `local weights: tensor "w" is not finite at value 0`},
		"base not":       {CodecE3M0, w(1, nan), w(1, 2), `base: tensor "w" is not finite at value 1`},
		"beyond float32": {CodecE3M0, w(1, math.MaxFloat32), w(1, -math.MaxFloat32), `beyond float32 at value 1`},
		"layout":         {CodecE3M0, w(1, 2), w(1, 2, 3), "do not match"},
		"local cut":      {CodecFP32, w(1, 2), w(1, 2)[:len(w(1, 2))-1], "cut off"},
		"base cut":       {CodecE3M0, w(1, 2)[:len(w(1, 2))-1], w(1, 2), "cut off"},
		"local too long": {CodecFP32, w(1, 2), append(w(1, 2), 0), "behind"},
		"base too long":  {CodecFP32, append(w(1, 2), 0), w(1, 2), "behind"},
		"order":          {CodecFP32, unsorted, unsorted, "ascending"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := EncodeDelta(c.codec, bytes.NewReader(c.base), bytes.NewReader(c.local), baseID, io.Discard)
			if domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), c.why) {
				t.Fatalf("got %v, want %q", err, c.why)
			}
		})
	}
	full := domain.Unavailable("put", "disk full", "", nil)
	_, err := EncodeDelta(CodecE3M0, bytes.NewReader(w(1)), bytes.NewReader(w(2)), baseID, failing{full})
	if !errors.Is(err, full) {
		t.Fatalf("disk full: %v", err)
	}
}

// failing is a writer that cannot.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// Only what has a rule is merged; the rest is refused by its name.
func TestClasses(t *testing.T) {
	for name, want := range map[string]Class{"bn.running_mean": Statistic, "running_var": Statistic, "a.running_mean.b": Trainable, "not_running_mean": Trainable, "": Trainable} {
		if got := ClassOf(safetensors.Tensor{Name: name, DType: safetensors.F32}); got != want {
			t.Errorf("%s has class %d, want %d", name, got, want)
		}
	}
	for dtype, want := range map[safetensors.DType]Class{
		safetensors.F32: Trainable, safetensors.BF16: OtherFloat, safetensors.F16: OtherFloat, safetensors.F64: OtherFloat,
		safetensors.I64: Whole, safetensors.U8: Whole, safetensors.Bool: Flag,
	} {
		ts := []safetensors.Tensor{{Name: "steps", DType: dtype}}
		if got := ClassOf(ts[0]); got != want {
			t.Errorf("%s has class %d, want %d", dtype, got, want)
		}
		err := CheckWeights(ts)
		if want == Trainable && err != nil {
			t.Error(err)
		}
		if want != Trainable && (domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), `"steps"`) || domain.NextOf(err) == "") {
			t.Errorf("%s: %v", dtype, err)
		}
	}
}

func TestMergeKeepsTheKindOfItsStreams(t *testing.T) {
	b := vector(1, 2, 3)
	delta := encode(t, CodecE3M0, b, vector(1, 2, 4))
	first := mustMerge(t, b.bytes(t), nil, 0.7, 0.9, contribution{delta, CodecE3M0, 1})
	gone := domain.Unavailable("get part", "link lost", "", nil)
	broken := func(good []byte, at int) io.Reader {
		return io.MultiReader(bytes.NewReader(good[:at]), iotest.ErrReader(gone))
	}
	job := func() Job {
		return Job{Base: bytes.NewReader(b.bytes(t)), BaseDigest: baseID, Momentum: bytes.NewReader(first.momentum), Eta: 0.7, Mu: 0.9,
			Inputs: []Input{{Delta: bytes.NewReader(delta), Codec: CodecE3M0, Samples: 1}}, NextBase: io.Discard, NextMomentum: io.Discard}
	}
	if _, err := Merge(job()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Job){
		"base":          func(j *Job) { j.Base = broken(b.bytes(t), 100) },
		"momentum":      func(j *Job) { j.Momentum = broken(first.momentum, len(first.momentum)-1) },
		"delta":         func(j *Job) { j.Inputs[0].Delta = broken(delta, len(delta)-1) },
		"next base":     func(j *Job) { j.NextBase = failing{gone} },
		"next momentum": func(j *Job) { j.NextMomentum = failing{gone} },
	} {
		j := job()
		change(&j)
		_, err := Merge(j)
		var input *InputError
		if !errors.Is(err, gone) || errors.As(err, &input) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, momentum := range map[string][]byte{
		"of another layout": mustMerge(t, vector(1).bytes(t), nil, 1, 0, contribution{encode(t, CodecFP32, vector(1), vector(1)), CodecFP32, 1}).momentum,
		"in float32":        b.bytes(t),
		"cut":               first.momentum[:len(first.momentum)-1],
		"with a tail":       append(bytes.Clone(first.momentum), 1),
	} {
		j := job()
		j.Momentum = bytes.NewReader(momentum)
		if _, err := Merge(j); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("momentum %s: %v", name, err)
		}
	}
}

// A step that leaves float32 is refused with the tensor's name, and so is a momentum that is no number.
func TestResultMustBeFinite(t *testing.T) {
	b := vector(1, math.MaxFloat32)
	in := contribution{encode(t, CodecFP32, b, vector(1, 0)), CodecFP32, 1}
	_, err := runMerge(vector(1, -math.MaxFloat32).bytes(t), nil, 2, 0.9, allGates, tileValues,
		contribution{encode(t, CodecFP32, b, b), CodecFP32, 1})
	if domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), `"w" would not be finite at value 1`) {
		t.Fatalf("overflow: %v", err)
	}
	out := mustMerge(t, b.bytes(t), nil, 1, 0, in)
	bad := edit(out.momentum, 16, 0, 0, 0, 0, 0, 0, 0xf0, 0x7f)
	if _, err := runMerge(b.bytes(t), bad, 1, 0.5, allGates, tileValues, in); domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), "value 0") {
		t.Fatalf("infinite momentum: %v", err)
	}
}

// Whatever an agent sends, the inspection ends with a finding, and what passes it can be merged.
func FuzzDelta(f *testing.F) {
	base := model{}.tensor("a", []int64{3}, 1, 2, 3).tensor("b", []int64{300}, make([]float32, 300)...)
	local := model{}.tensor("a", []int64{3}, 1, 2, 4).tensor("b", []int64{300}, make([]float32, 300)...)
	for i, codec := range allCodecs {
		f.Add(encode(f, codec, base, local), byte(i))
	}
	f.Fuzz(func(t *testing.T, delta []byte, which byte) {
		codec := allCodecs[int(which)%len(allCodecs)]
		found, err := Inspect(bytes.NewReader(base.bytes(t)), bytes.NewReader(delta), Expect{codec, baseID, base.layout()})
		if err != nil || len(found.Note) > domain.MaxReasonLength {
			t.Fatalf("%+v, %v", found, err)
		}
		_, err = runMerge(base.bytes(t), nil, 0.7, 0.9, allGates, tileValues, contribution{delta, codec, 3})
		var input *InputError
		if found.Why != "" && (!errors.As(err, &input) || input.Fault != found.Why) {
			t.Fatalf("found %+v, the merge says %v", found, err)
		}
		if found.Why == "" && err != nil && !strings.Contains(err.Error(), "would not be finite") {
			t.Fatalf("passed, but the merge says %v", err)
		}
	})
}
