package merge

import (
	"math"
	"testing"

	"tensorturn/domain"
)

var awkward = []float32{0, float32(math.Copysign(0, -1)), 1, -1, 0.1, -0.3, math.MaxFloat32 / 4, -math.MaxFloat32 / 4,
	math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, 1.1754942e-38, 3.14159, 1e-20, 1e20, 16777217}

// One machine, eta 1, mu 0, codec fp32: the next base is the local weights, bit for bit but for the sign of zero.
func TestOneContributionIsTheLocalWeights(t *testing.T) {
	local := vector(awkward...)
	base := make([]float32, len(awkward))
	for i := range base {
		base[i] = awkward[(i*7+3)%len(awkward)]
	}
	b := vector(base...)
	for _, samples := range []int64{1, 3, 1437, 1<<31 - 1, 1<<53 - 1} {
		out := mustMerge(t, b.bytes(t), nil, 1, 0, contribution{encode(t, CodecFP32, b, local), CodecFP32, samples})
		for i, v := range floats(t, out.base) {
			if v != awkward[i] {
				t.Errorf("samples %d: value %d is %v, local is %v", samples, i, v, awkward[i])
			}
		}
	}
}

func TestEqualWeights(t *testing.T) {
	b := vector(0, 10, -4)
	four := []contribution{
		{encode(t, CodecFP32, b, vector(1, 10, -4)), CodecFP32, 32},
		{encode(t, CodecFP32, b, vector(2, 10, -8)), CodecFP32, 32},
		{encode(t, CodecFP32, b, vector(3, 10, -4)), CodecFP32, 32},
		{encode(t, CodecFP32, b, vector(4, 10, -8)), CodecFP32, 32},
	}
	out := mustMerge(t, b.bytes(t), nil, 1, 0, four...)
	if got := floats(t, out.base); got[0] != 2.5 || got[1] != 10 || got[2] != -6 {
		t.Fatalf("mean %v", got)
	}
	if got := doubles(t, out.momentum); got[0] != -2.5 || got[1] != 0 || got[2] != 2 {
		t.Fatalf("momentum %v", got)
	}
	if want := math.Sqrt(2.5*2.5 + 2*2); out.norm != want {
		t.Fatalf("step norm %v, want %v", out.norm, want)
	}
	// Samples are the weight: three quarters of the samples, three quarters of the way.
	out = mustMerge(t, b.bytes(t), nil, 1, 0,
		contribution{encode(t, CodecFP32, b, vector(4, 10, -4)), CodecFP32, 96}, contribution{encode(t, CodecFP32, b, vector(0, 10, -4)), CodecFP32, 32})
	if got := floats(t, out.base); got[0] != 3 {
		t.Fatalf("weighted mean %v", got)
	}
}

// Three steps of Nesterov momentum by hand, PyTorch form, eta 0.5 and mu 0.5, D = 1 each time:
//
//	m 1, 1.5, 1.75;  step eta·(D + mu·m) = 0.75, 0.875, 0.9375
//
// Plain heavy ball would step 0.5, 0.75, 0.875.
func TestNesterovByHand(t *testing.T) {
	base, momentum := vector(8).bytes(t), []byte(nil)
	for i, want := range []struct {
		theta float32
		m     float64
	}{{7.25, 1}, {6.375, 1.5}, {5.4375, 1.75}} {
		theta := vector(floats(t, base)...)
		local := vector(theta.values[0][0] - 1)
		out := mustMerge(t, base, momentum, 0.5, 0.5, contribution{encode(t, CodecE3M0, theta, local), CodecE3M0, 10})
		base, momentum = out.base, out.momentum
		if got := floats(t, base)[0]; got != want.theta {
			t.Fatalf("step %d: theta %v, want %v", i+1, got, want.theta)
		}
		if got := doubles(t, momentum)[0]; got != want.m {
			t.Fatalf("step %d: momentum %v, want %v", i+1, got, want.m)
		}
	}
}

func TestOuterDefaults(t *testing.T) {
	for _, c := range []struct {
		rounds  int
		eta, mu float64
	}{{1, 1, 0.5}, {39, 1, 0.5}, {40, 0.7, 0.7}, {400, 0.7, 0.7}, {401, 0.7, 0.9}} {
		if eta, mu := OuterDefaults(c.rounds); eta != c.eta || mu != c.mu {
			t.Errorf("%d rounds: %v, %v", c.rounds, eta, mu)
		}
	}
}

func TestJobLimits(t *testing.T) {
	b := vector(1)
	good := contribution{encode(t, CodecFP32, b, vector(2)), CodecFP32, 1}
	with := func(n int64) contribution { c := good; c.samples = n; return c }
	for name, c := range map[string]struct {
		eta, mu float64
		in      []contribution
	}{
		"no delta":         {1, 0, nil},
		"eta 0":            {0, 0, []contribution{good}},
		"eta negative":     {-1, 0, []contribution{good}},
		"eta NaN":          {math.NaN(), 0, []contribution{good}},
		"eta infinite":     {math.Inf(1), 0, []contribution{good}},
		"mu 1":             {1, 1, []contribution{good}},
		"mu negative":      {1, -0.1, []contribution{good}},
		"mu NaN":           {1, math.NaN(), []contribution{good}},
		"no samples":       {1, 0, []contribution{with(0)}},
		"negative samples": {1, 0, []contribution{with(-5)}},
		"too many samples": {1, 0, []contribution{with(MaxTotalSamples - 1), with(2)}},
	} {
		if _, err := runMerge(b.bytes(t), nil, c.eta, c.mu, allGates, tileValues, c.in...); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := runMerge(b.bytes(t), nil, 1, 0, allGates, tileValues, with(MaxTotalSamples-1), with(1)); err != nil {
		t.Errorf("samples at the limit: %v", err)
	}
	job := Job{Eta: 1, Inputs: make([]Input, MaxInputs+1)}
	for i := range job.Inputs {
		job.Inputs[i].Samples = 1
	}
	if err := check(job); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("behind the limit of deltas: %v", err)
	}
	job.Inputs = job.Inputs[1:]
	if err := check(job); err != nil {
		t.Errorf("at the limit of deltas: %v", err)
	}
}
