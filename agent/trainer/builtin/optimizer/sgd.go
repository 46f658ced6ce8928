package optimizer

// SGD is plain gradient descent without momentum, with decoupled weight decay.
type SGD struct{ Decay float64 }

// Step implements Optimizer.
func (s *SGD) Step(weights, grads []float32, lr float64) {
	rate := float32(lr)
	keep := float32(1 - float64(lr*s.Decay))
	grads = grads[:len(weights)]
	for i, w := range weights {
		weights[i] = float32(w*keep) - float32(rate*grads[i])
	}
}
