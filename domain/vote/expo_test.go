package vote

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// ulps is the distance of two floats in units in the last place.
func ulps(a, b float64) int64 {
	d := int64(math.Float64bits(a)) - int64(math.Float64bits(b))
	return max(d, -d)
}

func TestExpAndLogAreClose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(underflow, 700).Draw(t, "x")
		if d := ulps(exp(x), math.Exp(x)); d > 2 {
			t.Errorf("exp(%v) is %v, %d units off", x, exp(x), d)
		}
		p := rapid.Float64Range(MinProbability, 1e6).Draw(t, "p")
		if d := math.Abs(log(p) - math.Log(p)); d > 4e-16*max(1, math.Abs(math.Log(p))) {
			t.Errorf("log(%v) is %v, %v off", p, log(p), d)
		}
	})
}

func TestExpAndLogAtTheirEdges(t *testing.T) {
	for _, c := range []struct{ got, want float64 }{
		{exp(0), 1}, {exp(-1e9), 0}, {exp(math.Inf(-1)), 0}, {log(1), 0}, {logOf(0), log(MinProbability)},
		{log(0.5), -math.Ln2}, {log(2), math.Ln2}, {gridAt(0), 1},
	} {
		if c.got != c.want {
			t.Errorf("%v instead of %v", c.got, c.want)
		}
	}
}
