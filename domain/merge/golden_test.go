package merge

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"

	"tensorturn/domain/safetensors"
)

// Golden vectors come from testdata/merge/golden.py, a second implementation. They must hold on every machine and for
// every setting of the compiler; on amd64 run both
//
//	GOAMD64=v1 go test -run Golden ./domain/merge
//	GOAMD64=v3 go test -run Golden ./domain/merge

func golden[T any](t *testing.T, name string) []T {
	t.Helper()
	b, err := os.ReadFile("testdata/merge/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var cases []T
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	return cases
}

func parse32(t *testing.T, words []string) []float32 {
	t.Helper()
	vs := make([]float32, len(words))
	for i, w := range words {
		u, err := strconv.ParseUint(w, 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		vs[i] = math.Float32frombits(uint32(u))
	}
	return vs
}

func parse64(t *testing.T, words []string) []float64 {
	t.Helper()
	vs := make([]float64, len(words))
	for i, w := range words {
		u, err := strconv.ParseUint(w, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		vs[i] = math.Float64frombits(u)
	}
	return vs
}

func same64(a, b []float64) int {
	for i := range a {
		if math.Float64bits(a[i]) != math.Float64bits(b[i]) {
			return i
		}
	}
	return -1
}

func same32(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	return -1
}

func TestGoldenE3M0(t *testing.T) {
	type vector struct {
		Name    string
		D       []string
		Code    string
		Decoded []string
	}
	for _, c := range golden[vector](t, "e3m0.json") {
		t.Run(c.Name, func(t *testing.T) {
			d := parse32(t, c.D)
			code := encodeAll(d)
			if got := hex.EncodeToString(code); got != c.Code {
				t.Fatalf("code\n%s, want\n%s", got, c.Code)
			}
			want := parse64(t, c.Decoded)
			got := decodeAll(code, len(d))
			if i := same64(got, want); i >= 0 {
				t.Fatalf("value %d: %v decoded as %v, want %v", i, d[i], got[i], want[i])
			}
		})
	}
}

// encodeAll codes a whole tensor.
func encodeAll(d []float32) []byte {
	code := make([]byte, codeBytes(CodecE3M0, int64(len(d))))
	for at := 0; at < len(d); at += BlockValues {
		encodeBlock(code[at/BlockValues*blockBytes:], d[at:min(at+BlockValues, len(d))])
	}
	return code
}

// decodeAll decodes n values.
func decodeAll(code []byte, n int) []float64 {
	d := make([]float64, n)
	for at := 0; at < n; at += BlockValues {
		block := code[at/BlockValues*blockBytes:]
		scale, _, _ := scaleOf(block)
		table := levels(scale)
		decodeBlock(d[at:min(at+BlockValues, n)], block, &table)
	}
	return d
}

type goldenMerge struct {
	Name    string
	Eta, Mu float64
	Base    []string
	Rounds  []struct {
		Inputs []struct {
			Codec   Codec
			Samples int64
			Payload string
		}
		NextBase     []string `json:"next_base"`
		NextMomentum []string `json:"next_momentum"`
		StepNorm     string   `json:"step_norm"`
	}
}

// wrap makes a delta file of the payload that a golden vector holds.
func wrap(t *testing.T, codec Codec, base model, payload string) []byte {
	t.Helper()
	data, err := hex.DecodeString(payload)
	if err != nil {
		t.Fatal(err)
	}
	ts, err := deltaTensors(codec, base.tensors)
	if err != nil {
		t.Fatal(err)
	}
	return pack(t, ts, deltaMetadata(codec, baseID, base.layout()), data)
}

func TestGoldenMerge(t *testing.T) {
	for _, c := range golden[goldenMerge](t, "merge.json") {
		t.Run(c.Name, func(t *testing.T) {
			base, momentum := vector(parse32(t, c.Base)...), []byte(nil)
			for i, r := range c.Rounds {
				var in []contribution
				for _, x := range r.Inputs {
					in = append(in, contribution{wrap(t, x.Codec, base, x.Payload), x.Codec, x.Samples})
				}
				out := mustMerge(t, base.bytes(t), momentum, c.Eta, c.Mu, in...)
				got, want := floats(t, out.base), parse32(t, r.NextBase)
				if j := same32(got, want); j >= 0 {
					t.Fatalf("round %d: value %d is %v, want %v", i+1, j, got[j], want[j])
				}
				gotM, wantM := doubles(t, out.momentum), parse64(t, r.NextMomentum)
				if j := same64(gotM, wantM); j >= 0 {
					t.Fatalf("round %d: momentum %d is %v, want %v", i+1, j, gotM[j], wantM[j])
				}
				if norm := parse64(t, []string{r.StepNorm})[0]; norm != out.norm {
					t.Fatalf("round %d: step norm %v, want %v", i+1, out.norm, norm)
				}
				base, momentum = vector(got...), out.momentum
			}
		})
	}
}

// The vectors would notice fused arithmetic: with it, at least one value of theirs differs.
func TestGoldenVectorsNoticeFusion(t *testing.T) {
	differ := 0
	for _, c := range golden[goldenMerge](t, "merge.json") {
		theta := parse32(t, c.Base)
		r := c.Rounds[0]
		var total float64
		sum := make([]float64, len(theta))
		for _, x := range r.Inputs {
			total += float64(x.Samples)
			data, err := hex.DecodeString(x.Payload)
			if err != nil {
				t.Fatal(err)
			}
			local := make([]float64, len(theta))
			if x.Codec == CodecFP32 {
				widen(local, data)
			} else {
				for j, d := range decodeAll(data, len(theta)) {
					local[j] = float64(theta[j]) - d
				}
			}
			for j := range sum {
				sum[j] = math.FMA(float64(x.Samples), local[j], sum[j])
			}
		}
		want := parse64(t, r.NextMomentum)
		for j := range sum {
			if float64(theta[j])-sum[j]/total != want[j] {
				differ++
			}
		}
	}
	if differ == 0 {
		t.Fatal("no value of the vectors depends on fusion")
	}
}

// A delta file is for ever too: accepted ones are named in the log.
func TestGoldenDeltaFile(t *testing.T) {
	base := model{}.tensor("b", nil, 1).tensor("w", []int64{1, 3}, 1, 2, 3)
	local := model{}.tensor("b", nil, 0.5).tensor("w", []int64{1, 3}, 1, 3, 2.9)
	var buf bytes.Buffer
	norm, err := EncodeDelta(CodecE3M0, bytes.NewReader(base.bytes(t)), bytes.NewReader(local.bytes(t)), baseID, &buf)
	if err != nil {
		t.Fatal(err)
	}
	// D is 0.5 in b and 0, −1, 0.1 (coded as 0.125) in w.
	if want := math.Sqrt(0.5*0.5 + 1 + 0.125*0.125); norm != want {
		t.Fatalf("norm %v, want %v", norm, want)
	}
	if got := hex.EncodeToString(payload(t, buf.Bytes())); got != "0000003f07"+"0000803f"+"f004" {
		t.Fatalf("payload %s", got)
	}
	r, err := safetensors.NewReader(bytes.NewReader(buf.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if m := r.Metadata(); len(m) != 4 || m["format"] != "pt" || m["tensorturn.codec"] != "e3m0" ||
		m["tensorturn.base"] != string(baseID) || m["tensorturn.layout"] != string(base.layout()) {
		t.Fatalf("metadata %v", m)
	}
}
