// Package optimizer holds the inner optimizers of the built-in trainer, the gradient clip and the learning-rate
// schedule: loops over one flat slice of parameters and gradients. It knows no model and no data.
//
// Every product that is added to something is wrapped in a conversion, so that no compiler fuses the two: the bits are
// the same at every GOAMD64 level.
package optimizer

import (
	"fmt"
	"math"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// Optimizer moves weights against their gradients. Its state belongs to one set of weights' places, not to their
// values: the weights may be replaced between steps.
type Optimizer interface {
	// Step applies one update with learning rate lr; both slices have the length the optimizer was made for.
	Step(weights, grads []float32, lr float64)
}

// New makes the optimizer that a resolved spec asks for, for n parameters.
func New(spec run.Optimizer, n int) (Optimizer, error) {
	switch spec.Kind {
	case run.OptimizerAdamW:
		return &AdamW{Beta1: spec.Beta1, Beta2: spec.Beta2, Decay: spec.WeightDecay, m: make([]float32, n), v: make([]float32, n), pow1: 1, pow2: 1}, nil
	case run.OptimizerSGD:
		return &SGD{Decay: spec.WeightDecay}, nil
	}
	return nil, domain.Invalid("open trainer", fmt.Sprintf("optimizer.kind is %q", domain.Clip(spec.Kind, 40)), `set it to "adamw" or "sgd"`)
}

// Norm is the L2 norm of a gradient, summed in float64 in the slice's order by four interleaved sums.
func Norm(grads []float32) float64 {
	var s0, s1, s2, s3 float64
	for ; len(grads) >= 4; grads = grads[4:] {
		a, b, c, d := float64(grads[0]), float64(grads[1]), float64(grads[2]), float64(grads[3])
		s0 += float64(a * a)
		s1 += float64(b * b)
		s2 += float64(c * c)
		s3 += float64(d * d)
	}
	for _, g := range grads {
		s0 += float64(float64(g) * float64(g))
	}
	return math.Sqrt((s0 + s1) + (s2 + s3))
}

// Clip scales a gradient of the given norm down to limit; a limit that is not positive switches it off.
func Clip(grads []float32, norm, limit float64) {
	if limit <= 0 || norm <= limit {
		return
	}
	scale := float32(limit / norm)
	for i := range grads {
		grads[i] *= scale
	}
}
