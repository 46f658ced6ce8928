// Package tape is reverse-mode automatic differentiation over float32 tensors: a fixed list of operations that is run
// forwards and then backwards, once a step, on buffers that are made once.
//
// A model is built once: parameters, then operations in the order of the forward pass. Each operation is a file of its
// own that knows its forward and backward arithmetic and nothing else; the tape knows neither models, optimizers nor
// data. A new operation (convolution, attention) is a new file with an Op.
//
// Matrix products are gonum's blas32 (pure Go with assembly on amd64, no cgo): it splits work over blocks of the output
// only, so the bits do not depend on GOMAXPROCS. They do depend on the 16-byte alignment of the right operand, which is
// why all memory here comes from one aligned arena each for values and gradients. Operations that gonum does not spread are
// cut into parts that do not depend on the number of processors either (split). One goroutine at a time calls.
//
// Dependency: gonum/blas32 is the fastest pure Go matrix product (measured in the builtin package's DESIGN.md).
package tape

import (
	"slices"

	"tensorturn/domain"
)

// Tensor is a block of float32 values with their gradient.
type Tensor struct {
	// Data and Grad have equal length: the whole of a parameter, or the rows of the present batch of an activation.
	// Grad is nil where no gradient is wanted.
	Data, Grad []float32

	width      int       // values a row; of a parameter, all
	data, grad []float32 // full capacity of an activation
}

// Width is the number of values of one row of an activation, or of a whole parameter.
func (t *Tensor) Width() int { return t.width }

// Op is one operation. Forward writes its output's Data from its inputs' Data. Backward adds to its inputs' Grad from
// its output's Grad, skipping inputs whose Grad is nil, so that a tensor may be used twice.
type Op interface {
	Forward()
	Backward()
}

// Tape is a model's operations over the rows of one batch.
type Tape struct {
	rows        int // of the present batch
	capacity    int // most rows of a batch
	training    bool
	ops         []Op
	activations []*Tensor
}

// New makes an empty tape for batches of at most capacity rows.
func New(capacity int) *Tape {
	domain.Assert(capacity > 0, "a tape holds at least one row")
	return &Tape{capacity: capacity, rows: capacity}
}

// Rows is the number of rows of the present batch.
func (t *Tape) Rows() int { return t.rows }

// Train says whether batches are trained on: normalisation by the batch's own statistics is for those alone.
func (t *Tape) Train(on bool) { t.training = on }

// row is row r of the present batch's values.
func (t *Tensor) row(r int) []float32 { return t.Data[r*t.width : (r+1)*t.width] }

// Activation makes a tensor of width values a row. A tensor without gradient is an input.
func (t *Tape) Activation(width int, gradient bool) *Tensor {
	domain.Assert(width > 0, "a row has at least one value")
	a := &Tensor{width: width, data: aligned(t.capacity * width)}
	if gradient {
		a.grad = aligned(t.capacity * width)
	}
	t.activations = append(t.activations, a)
	t.resize(a)
	return a
}

// Record appends an operation; operations run in the order of their recording.
func (t *Tape) Record(op Op) { t.ops = append(t.ops, op) }

// Resize sets the number of rows of the next batch, at most the capacity.
func (t *Tape) Resize(rows int) {
	domain.Assert(rows > 0 && rows <= t.capacity, "a batch fits the tape")
	if rows == t.rows {
		return
	}
	t.rows = rows
	for _, a := range t.activations {
		t.resize(a)
	}
}

func (t *Tape) resize(a *Tensor) {
	a.Data = a.data[:t.rows*a.width]
	if a.grad != nil {
		a.Grad = a.grad[:t.rows*a.width]
	}
}

// Forward runs every operation in order.
func (t *Tape) Forward() {
	for _, op := range t.ops {
		op.Forward()
	}
}

// Backward clears the activations' gradients and runs every operation in reverse. Parameters' gradients are added to;
// their owner clears them (Params.ZeroGrad).
func (t *Tape) Backward() {
	for _, a := range t.activations {
		clear(a.Grad)
	}
	for _, op := range slices.Backward(t.ops) {
		op.Backward()
	}
}

// lane is the alignment that the vector kernels see: 64 bytes.
const lane = 16

// aligned makes n values at a 16-byte boundary. Go places pointer-free objects of at least 32 bytes at multiples of 16,
// and a size in multiples of 64 keeps clear of its odd size classes; a test watches over it.
func aligned(n int) []float32 {
	return make([]float32, (n+lane-1)/lane*lane)[:n:n]
}
