package tape

// SquaredError is the mean squared error: the end of a regression's tape. Its result is read after Forward.
type SquaredError struct {
	y       *Tensor
	tape    *Tape
	targets []float32
}

// NewSquaredError records the mean of (y − target)² over the batch; y is one value a row.
func NewSquaredError(t *Tape, y *Tensor) *SquaredError {
	s := &SquaredError{y: y, tape: t, targets: aligned(t.capacity * y.Width())}
	t.Record(s)
	return s
}

// Targets is where what is to be predicted of the present batch is to be written before Forward.
func (s *SquaredError) Targets() []float32 { return s.targets[:len(s.y.Data)] }

// Predictions is what the network says of the present batch, valid until the next Forward.
func (s *SquaredError) Predictions() []float32 { return s.y.Data }

// Forward implements Op.
func (s *SquaredError) Forward() {}

// Loss sums the squares over the rows of the batch in float64.
func (s *SquaredError) Loss() float64 {
	total := 0.0
	for i, t := range s.Targets() {
		d := float64(s.y.Data[i]) - float64(t)
		total += float64(d * d)
	}
	return total
}

// Backward gives the gradient of the mean: 2 · (y − target) / rows.
func (s *SquaredError) Backward() {
	scale := 2 / float32(s.tape.Rows())
	for i, t := range s.Targets() {
		s.y.Grad[i] += float32((s.y.Data[i] - t) * scale)
	}
}
