package optimizer

import "math"

// epsilon keeps the denominator from zero; the value of the paper and of PyTorch.
const epsilon = 1e-8

// AdamW is Adam with bias correction and decoupled weight decay (Loshchilov and Hutter, "Decoupled weight decay
// regularization", 2019, algorithm 2), the decay scaled by the learning rate as PyTorch does it, on all tensors.
type AdamW struct {
	Beta1, Beta2, Decay float64
	m, v                []float32
	pow1, pow2          float64 // betas to the power of the steps so far, as running products: math.Pow differs by platform
}

// Step implements Optimizer.
func (a *AdamW) Step(weights, grads []float32, lr float64) {
	a.pow1 *= a.Beta1
	a.pow2 *= a.Beta2
	b1, c1 := float32(a.Beta1), float32(1-a.Beta1)
	b2, c2 := float32(a.Beta2), float32(1-a.Beta2)
	step := float32(lr / (1 - a.pow1))
	root := float32(1 / math.Sqrt(1-a.pow2))
	keep := float32(1 - float64(lr*a.Decay))
	m, v := a.m[:len(weights)], a.v[:len(weights)]
	grads = grads[:len(weights)]
	for i, w := range weights {
		g := grads[i]
		mi := float32(b1*m[i]) + float32(c1*g)
		vi := float32(b2*v[i]) + float32(float32(c2*g)*g)
		m[i], v[i] = mi, vi
		scale := float32(float32(math.Sqrt(float64(vi)))*root) + epsilon
		weights[i] = float32(w*keep) - float32(step*mi)/scale
	}
}
