package merge

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// The codes of int8 and 2-bit, both ways.
func TestGoldenCodes(t *testing.T) {
	type vector struct {
		Name    string
		D       []string
		Code    string
		Decoded []string
	}
	for file, codec := range map[string]Codec{"int8.json": CodecInt8, "twobit.json": CodecTwoBit, "e3m0.json": CodecE3M0} {
		for _, c := range golden[vector](t, file) {
			t.Run(string(codec)+"/"+c.Name, func(t *testing.T) {
				d := parse32(t, c.D)
				code, got := make([]byte, codeBytes(codec, int64(len(d)))), make([]float64, len(d))
				encodeTile(codec, code, d, got)
				if h := hex.EncodeToString(code); h != c.Code {
					t.Fatalf("code\n%s, want\n%s", h, c.Code)
				}
				want := parse64(t, c.Decoded)
				if i := same64(got, want); i >= 0 {
					t.Fatalf("value %d: %v decoded as %v, want %v", i, d[i], got[i], want[i])
				}
			})
		}
	}
}

// A chain of deltas of one slot, each with what the one before lost.
func TestGoldenFeedback(t *testing.T) {
	type chain struct {
		Name  Codec
		Base  []string
		Steps []struct {
			Keep     float64
			Local    []string
			Code     string
			Residual []string
		}
	}
	for _, c := range golden[chain](t, "feedback.json") {
		t.Run(string(c.Name), func(t *testing.T) {
			base, residual := vector(parse32(t, c.Base)...), []byte(nil)
			for i, s := range c.Steps {
				delta, next, _ := encodeFed(t, c.Name, base, vector(parse32(t, s.Local)...), residual, s.Keep)
				if h := hex.EncodeToString(payload(t, delta)); h != s.Code {
					t.Fatalf("step %d: code\n%s, want\n%s", i+1, h, s.Code)
				}
				if j := same32(floats(t, next), parse32(t, s.Residual)); j >= 0 {
					t.Fatalf("step %d: residual %d is %v, want %s", i+1, j, floats(t, next)[j], s.Residual[j])
				}
				residual = next
			}
		})
	}
}

// encodeFed codes with feedback.
func encodeFed(t testing.TB, codec Codec, base, local model, residual []byte, keep float64) (delta, next []byte, e Encoded) {
	t.Helper()
	var d, n bytes.Buffer
	f := Feedback{Keep: keep, Next: &n}
	if residual != nil {
		f.Residual = bytes.NewReader(residual)
	}
	e, err := EncodeWithFeedback(codec, bytes.NewReader(base.bytes(t)), bytes.NewReader(local.bytes(t)), baseID, &d, f)
	if err != nil {
		t.Fatal(err)
	}
	return d.Bytes(), n.Bytes(), e
}

// Merges whose next base goes out as an increment.
func TestGoldenDown(t *testing.T) {
	type story struct {
		Name    string
		Codec   Codec
		Eta, Mu float64
		Base    []string
		Rounds  []struct {
			Inputs []struct {
				Codec   Codec
				Samples int64
				Payload string
			}
			Increment    string
			NextBase     []string `json:"next_base"`
			NextMomentum []string `json:"next_momentum"`
			NextResidual []string `json:"next_residual"`
		}
	}
	for _, c := range golden[story](t, "down.json") {
		t.Run(c.Name, func(t *testing.T) {
			base, was := vector(parse32(t, c.Base)...), downOutcome{}
			for i, r := range c.Rounds {
				var in []contribution
				for _, x := range r.Inputs {
					in = append(in, contribution{wrap(t, x.Codec, base, x.Payload), x.Codec, x.Samples})
				}
				got := mustMergeDown(t, base, was, c.Codec, c.Eta, c.Mu, in...)
				if h := hex.EncodeToString(payload(t, got.increment)); h != r.Increment {
					t.Fatalf("round %d: increment\n%s, want\n%s", i+1, h, r.Increment)
				}
				if j := same32(floats(t, got.base), parse32(t, r.NextBase)); j >= 0 {
					t.Fatalf("round %d: value %d is %v, want %s", i+1, j, floats(t, got.base)[j], r.NextBase[j])
				}
				if j := same64(doubles(t, got.momentum), parse64(t, r.NextMomentum)); j >= 0 {
					t.Fatalf("round %d: momentum %d", i+1, j)
				}
				if j := same64(doubles(t, got.residual), parse64(t, r.NextResidual)); j >= 0 {
					t.Fatalf("round %d: residual %d is %v, want %s", i+1, j, doubles(t, got.residual)[j], r.NextResidual[j])
				}
				if grown := apply(t, c.Codec, base.bytes(t), got.increment); !bytes.Equal(grown, got.base) {
					t.Fatalf("round %d: a machine that adds the increment has other bytes than the hub", i+1)
				}
				base, was = vector(floats(t, got.base)...), got
			}
		})
	}
}

// downOutcome is everything that a merge with a coded way down gives.
type downOutcome struct {
	base, momentum, residual, increment []byte
	owed                                float64
}

func mergeDown(t testing.TB, base model, was downOutcome, codec Codec, eta, mu float64, tile int, in ...contribution) (downOutcome, error) {
	t.Helper()
	var nb, nm, nr, inc bytes.Buffer
	job := Job{Base: bytes.NewReader(base.bytes(t)), BaseDigest: baseID, Eta: eta, Mu: mu, NextBase: &nb, NextMomentum: &nm,
		Down: Down{Codec: codec, Increment: &inc, NextResidual: &nr}}
	if was.momentum != nil {
		job.Momentum, job.Down.Residual = bytes.NewReader(was.momentum), bytes.NewReader(was.residual)
	}
	for _, c := range in {
		job.Inputs = append(job.Inputs, Input{Delta: bytes.NewReader(c.delta), Codec: c.codec, Samples: c.samples})
	}
	r, err := mergeTiles(job, allGates, tile)
	return downOutcome{nb.Bytes(), nm.Bytes(), nr.Bytes(), inc.Bytes(), r.Residual}, err
}

func mustMergeDown(t testing.TB, base model, was downOutcome, codec Codec, eta, mu float64, in ...contribution) downOutcome {
	t.Helper()
	out, err := mergeDown(t, base, was, codec, eta, mu, tileValues, in...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func apply(t testing.TB, codec Codec, base, increment []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := ApplyIncrement(codec, bytes.NewReader(base), bytes.NewReader(increment), baseID, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
