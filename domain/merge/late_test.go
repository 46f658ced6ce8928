package merge

import (
	"bytes"
	"strings"
	"testing"

	"tensorturn/domain"
)

const formerID = domain.Digest("f0e4e40000000000000000000000000000000000000000000000000000f0e4e4")

type goldenLate struct {
	Name    string
	Eta, Mu float64
	Base    []string
	Rounds  []struct {
		Inputs []struct {
			Codec   Codec
			Samples int64
			Late    bool
			Payload string
		}
		NextBase     []string `json:"next_base"`
		NextMomentum []string `json:"next_momentum"`
		StepNorm     string   `json:"step_norm"`
	}
}

// relabel makes a delta say that it was made from the former base.
func relabel(delta []byte) []byte {
	return bytes.Replace(delta, []byte(baseID), []byte(formerID), 1)
}

// TestGoldenLate holds merges with deltas of the previous base against the second implementation.
func TestGoldenLate(t *testing.T) {
	for _, c := range golden[goldenLate](t, "late.json") {
		t.Run(c.Name, func(t *testing.T) {
			base, momentum := vector(parse32(t, c.Base)...), []byte(nil)
			former := base
			for i, r := range c.Rounds {
				var nb, nm bytes.Buffer
				job := Job{Base: bytes.NewReader(base.bytes(t)), BaseDigest: baseID, Eta: c.Eta, Mu: c.Mu, NextBase: &nb, NextMomentum: &nm}
				if momentum != nil {
					job.Momentum = bytes.NewReader(momentum)
				}
				for _, x := range r.Inputs {
					delta := wrap(t, x.Codec, base, x.Payload)
					in := Input{Delta: bytes.NewReader(delta), Codec: x.Codec, Samples: x.Samples}
					if x.Late {
						in.Delta, in.Base, in.BaseReader = bytes.NewReader(relabel(delta)), formerID, bytes.NewReader(former.bytes(t))
					}
					job.Inputs = append(job.Inputs, in)
				}
				res, err := mergeTiles(job, allGates, BlockValues)
				if err != nil {
					t.Fatal(err)
				}
				got, gotM := floats(t, nb.Bytes()), doubles(t, nm.Bytes())
				if j := same32(got, parse32(t, r.NextBase)); j >= 0 {
					t.Fatalf("round %d: value %d is %v, want %v", i+1, j, got[j], parse32(t, r.NextBase)[j])
				}
				if j := same64(gotM, parse64(t, r.NextMomentum)); j >= 0 {
					t.Fatalf("round %d: momentum %d is %v", i+1, j, gotM[j])
				}
				if norm := parse64(t, []string{r.StepNorm})[0]; norm != res.StepNorm {
					t.Fatalf("round %d: step norm %v, want %v", i+1, res.StepNorm, norm)
				}
				former, base, momentum = base, vector(got...), bytes.Clone(nm.Bytes())
			}
		})
	}
}

// TestLateInputs: what a late delta must bring, and that a delta which is not late is held to the round's base.
func TestLateInputs(t *testing.T) {
	base, former := vector(1, 2, 3), vector(4, 5, 6)
	local := encode(t, CodecFP32, former, vector(4.5, 5, 6))
	late := func() Input {
		return Input{Delta: bytes.NewReader(relabel(local)), Codec: CodecFP32, Samples: 1, Base: formerID, BaseReader: bytes.NewReader(former.bytes(t))}
	}
	merged := func(in Input) error {
		_, err := Merge(Job{Base: bytes.NewReader(base.bytes(t)), BaseDigest: baseID, Eta: 1, Inputs: []Input{in}, NextBase: &bytes.Buffer{}, NextMomentum: &bytes.Buffer{}})
		return err
	}
	for _, c := range []struct {
		name string
		make func(*Input)
		says string
	}{
		{"as it should be", func(*Input) {}, ""},
		{"its weights are not given", func(in *Input) { in.BaseReader = nil }, "there is none"},
		{"its weights have another layout", func(in *Input) { in.BaseReader = bytes.NewReader(vector(1, 2).bytes(t)) }, "does not match"},
		{"its weights end early", func(in *Input) { b := former.bytes(t); in.BaseReader = bytes.NewReader(b[:len(b)-2]) }, "cut off"},
		{"it says another base", func(in *Input) { in.Delta = bytes.NewReader(local) }, "made from base"},
		{"it is not marked as late", func(in *Input) { in.Base = "" }, "made from base"},
		{"its samples reach behind the limit of five times", func(in *Input) { in.Samples = MaxTotalSamples / 4 }, "at most"},
	} {
		in := late()
		c.make(&in)
		if err := merged(in); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}

// TestLateStatistics: measurements are averaged as values, wherever they were taken.
func TestLateStatistics(t *testing.T) {
	at := func(v float32) model { return model{}.tensor("bn.running_var", []int64{1}, v) }
	base, former := at(1), at(2)
	var nb, nm bytes.Buffer
	_, err := Merge(Job{Base: bytes.NewReader(base.bytes(t)), BaseDigest: baseID, Eta: 1, NextBase: &nb, NextMomentum: &nm, Inputs: []Input{
		{Delta: bytes.NewReader(encode(t, CodecFP32, base, at(10))), Codec: CodecFP32, Samples: 1},
		{Delta: bytes.NewReader(relabel(encode(t, CodecFP32, former, at(19)))), Codec: CodecFP32, Samples: 1, Base: formerID, BaseReader: bytes.NewReader(former.bytes(t))},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := floats(t, nb.Bytes())[0]; got != 14 { // (5·10 + 4·19) / 9
		t.Errorf("the mean is %v, want 14", got)
	}
}
