package vote

import (
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// goldenCase is a vote computed by testdata/golden.py, a second implementation. Floats are hexadecimal.
type goldenCase struct {
	Name          string
	Rule          Rule
	Classes       int
	Labels        []int32
	Probabilities [][]uint32 // bits of float32
	Result        struct {
		Asked, Rule  Rule
		Weights      []hex
		Temperature  hex
		Rows         int
		FitRows      int `json:"fit_rows"`
		TestRows     int `json:"test_rows"`
		Members      []goldenScore
		Vote         goldenScore
		Best         int
		Pairs        []int
		Disagreement hex
	}
}

type goldenScore struct {
	Accuracy, NLL, Brier, ECE, Temperature hex
	ScaledNLL                              hex `json:"scaled_nll"`
	ScaledBrier                            hex `json:"scaled_brier"`
	ScaledECE                              hex `json:"scaled_ece"`
}

func (s goldenScore) score() Score {
	return Score{float64(s.Accuracy), float64(s.NLL), float64(s.Brier), float64(s.ECE), float64(s.Temperature), float64(s.ScaledNLL), float64(s.ScaledBrier), float64(s.ScaledECE)}
}

// hex is a float64 as Python writes it.
type hex float64

func (h *hex) UnmarshalJSON(raw []byte) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	v, err := strconv.ParseFloat(s, 64)
	*h = hex(v)
	return err
}

func goldenCases(t *testing.T) []goldenCase {
	t.Helper()
	raw, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []goldenCase
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

func (c goldenCase) input() Input {
	in := Input{Classes: c.Classes, Labels: c.Labels}
	for _, bits := range c.Probabilities {
		p := make([]float32, len(bits))
		for i, b := range bits {
			p[i] = math.Float32frombits(b)
		}
		in.Members = append(in.Members, p)
	}
	return in
}

func (c goldenCase) want() Result {
	g := c.Result
	r := Result{Asked: g.Asked, Rule: g.Rule, Temperature: float64(g.Temperature), Rows: g.Rows, FitRows: g.FitRows, TestRows: g.TestRows,
		Vote: g.Vote.score(), Best: g.Best, Pairs: g.Pairs, Disagreement: float64(g.Disagreement)}
	for _, w := range g.Weights {
		r.Weights = append(r.Weights, float64(w))
	}
	for _, m := range g.Members {
		r.Members = append(r.Members, m.score())
	}
	r.Mean = meanScore(r.Members)
	return r
}

// TestGolden holds every bit to the second implementation. Run it under GOAMD64=v1 and v3 (make exactness).
func TestGolden(t *testing.T) {
	rules := map[Rule]bool{}
	for _, c := range goldenCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			got, err := Compute(c.input(), c.Rule)
			if err != nil {
				t.Fatal(err)
			}
			got.Fallback = "" // a sentence
			if diff := cmp.Diff(c.want(), got); diff != "" {
				t.Errorf("differs from golden.py (-want +got):\n%s", diff)
			}
		})
		rules[c.Result.Rule] = true
	}
	for _, rule := range Rules() {
		if rule != Auto && !rules[rule] {
			t.Errorf("no vector is decided by %s", rule)
		}
	}
}
