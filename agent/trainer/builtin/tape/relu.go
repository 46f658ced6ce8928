package tape

// relu is y = max(x, 0); its derivative at 0 is 0.
type relu struct{ x, y *Tensor }

// ReLU records y = max(x, 0), value by value. A NaN stays a NaN.
func ReLU(t *Tape, x *Tensor) *Tensor {
	y := t.Activation(x.Width(), true)
	t.Record(&relu{x: x, y: y})
	return y
}

func (r *relu) Forward() {
	y := r.y.Data
	for i, v := range r.x.Data {
		y[i] = max(v, 0) // compiled without a branch, which would be mispredicted every other time
	}
}

func (r *relu) Backward() {
	if r.x.Grad == nil {
		return
	}
	dx, dy := r.x.Grad, r.y.Grad
	for i, v := range r.x.Data {
		if v > 0 {
			dx[i] += dy[i]
		}
	}
}
