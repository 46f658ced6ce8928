package optimizer

import (
	"math"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// Two steps of AdamW on one weight, worked out by hand: w = 1, lr = 0.1, betas 0.9 and 0.999, decay 0.01.
//
// Step 1, g = 0.5:  m = 0.05, v = 0.00025; corrected m = 0.5, v = 0.25; w = 1·(1−0.001) − 0.1·0.5/0.5 = 0.899.
// Step 2, g = −0.2: m = 0.045−0.02 = 0.025, v = 0.00024975+0.00004 = 0.00028975;
// corrected m = 0.025/0.19 = 0.131578947, v = 0.00028975/0.001999 = 0.144947474, √v = 0.380719678;
// w = 0.899·0.999 − 0.1·0.131578947/0.380719678 = 0.898101 − 0.034560584 = 0.863540416.
func TestAdamWByHand(t *testing.T) {
	o, err := New(run.Optimizer{Kind: run.OptimizerAdamW, Beta1: 0.9, Beta2: 0.999, WeightDecay: 0.01}, 1)
	if err != nil {
		t.Fatal(err)
	}
	w := []float32{1}
	for i, c := range []struct{ grad, want float64 }{{0.5, 0.899}, {-0.2, 0.863540416}} {
		o.Step(w, []float32{float32(c.grad)}, 0.1)
		if math.Abs(float64(w[0])-c.want) > 1e-6 {
			t.Errorf("step %d gives %v, want %v", i+1, w[0], c.want)
		}
	}
}

// AdamW in float64, written straight from the paper, over many steps.
func TestAdamWAgreesWithThePaper(t *testing.T) {
	const n, steps, lr, b1, b2, decay = 7, 200, 3e-3, 0.9, 0.99, 0.1
	o, err := New(run.Optimizer{Kind: run.OptimizerAdamW, Beta1: b1, Beta2: b2, WeightDecay: decay}, n)
	if err != nil {
		t.Fatal(err)
	}
	w, g := make([]float32, n), make([]float32, n)
	var want, m, v [n]float64
	for step := 1; step <= steps; step++ {
		for i := range g {
			g[i] = float32(math.Sin(float64(step*(i+1))) + 0.3)
		}
		o.Step(w, g, lr)
		for i := range want {
			x := float64(g[i])
			m[i], v[i] = b1*m[i]+(1-b1)*x, b2*v[i]+(1-b2)*x*x
			mh, vh := m[i]/(1-math.Pow(b1, float64(step))), v[i]/(1-math.Pow(b2, float64(step)))
			want[i] -= lr*decay*want[i] + lr*mh/(math.Sqrt(vh)+1e-8)
		}
	}
	for i := range want {
		if math.Abs(float64(w[i])-want[i]) > 1e-5 {
			t.Errorf("weight %d is %v, want %v", i, w[i], want[i])
		}
	}
}

func TestSGD(t *testing.T) {
	o, err := New(run.Optimizer{Kind: run.OptimizerSGD, WeightDecay: 0.5}, 2)
	if err != nil {
		t.Fatal(err)
	}
	w := []float32{1, -2}
	o.Step(w, []float32{0.5, 1}, 0.1) // 1·0.95 − 0.05, −2·0.95 − 0.1
	if math.Abs(float64(w[0])-0.9) > 1e-6 || math.Abs(float64(w[1])+2) > 1e-6 {
		t.Errorf("weights %v", w)
	}
}

func TestUnknownOptimizer(t *testing.T) {
	if _, err := New(run.Optimizer{Kind: "lion"}, 1); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("error %v", err)
	}
}

func TestNormAndClip(t *testing.T) {
	g := []float32{3, 0, 4, 0, 12}
	norm := Norm(g)
	if norm != 13 {
		t.Fatalf("norm %v, want 13", norm)
	}
	for _, limit := range []float64{-1, 0, 13, 20} {
		Clip(g, norm, limit)
		if g[0] != 3 {
			t.Fatalf("limit %v changed a gradient of norm 13", limit)
		}
	}
	Clip(g, norm, 1.3)
	if now := Norm(g); math.Abs(now-1.3) > 1e-6 {
		t.Errorf("clipped to %v, want 1.3", now)
	}
	g[1] = float32(math.NaN())
	if !math.IsNaN(Norm(g)) {
		t.Error("a NaN vanished from the norm")
	}
	if big := Norm([]float32{math.MaxFloat32, math.MaxFloat32}); math.IsInf(big, 0) {
		t.Error("the norm of finite gradients overflows")
	}
}

func TestRate(t *testing.T) {
	cosine := run.Schedule{Kind: run.ScheduleCosine, Warmup: 0.1, Floor: 0.05}
	constant := run.Schedule{Kind: run.ScheduleConstant, Warmup: -1, Floor: -1}
	for _, c := range []struct {
		name     string
		schedule run.Schedule
		from, to int64
		want     float64
	}{
		{"first step of the warm-up is not zero", cosine, 0, 10, 0.2},
		{"half of the warm-up", cosine, 40, 50, 1},
		{"end of the warm-up", cosine, 90, 100, 2},
		{"a step across the end of the warm-up", cosine, 95, 105, 2},
		{"beginning of the cosine", cosine, 100, 110, 2},
		{"middle of the cosine", cosine, 550, 560, 2 * (0.05 + 0.95/2)},
		{"end of the cosine", cosine, 1000, 1000, 2 * 0.05},
		{"cosine without warm-up", run.Schedule{Kind: run.ScheduleCosine, Warmup: -1, Floor: -1}, 0, 10, 2},
		{"cosine to zero", run.Schedule{Kind: run.ScheduleCosine, Warmup: -1, Floor: -1}, 1000, 1000, 0},
		{"constant from the start", constant, 0, 10, 2},
		{"constant to the end", constant, 990, 1000, 2},
		{"constant with warm-up", run.Schedule{Kind: run.ScheduleConstant, Warmup: 0.1}, 0, 50, 1},
		{"warm-up over the whole run", run.Schedule{Kind: run.ScheduleCosine, Warmup: 1}, 990, 1000, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Rate(c.schedule, 2, c.from, c.to, 1000); math.Abs(got-c.want) > 1e-12 {
				t.Errorf("rate %v, want %v", got, c.want)
			}
		})
	}
}
