package tape

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"tensorturn/domain"
)

// linear is y = x·Wᵀ + b with W [out, in], as PyTorch stores it.
type linear struct {
	tape    *Tape
	x, y    *Tensor
	w, b    *Tensor
	in, out int
}

// Linear records y = x·Wᵀ + b and returns y [rows, out]. w holds out × in values row-major, b out values.
func Linear(t *Tape, x, w, b *Tensor) *Tensor {
	in, out := x.Width(), b.Width()
	domain.Assert(w.Width() == in*out, "a linear layer's weight is out × in")
	y := t.Activation(out, true)
	t.Record(&linear{tape: t, x: x, y: y, w: w, b: b, in: in, out: out})
	return y
}

func (l *linear) Forward() {
	for i := range l.tape.Rows() {
		copy(l.y.Data[i*l.out:], l.b.Data)
	}
	blas32.Gemm(blas.NoTrans, blas.Trans, 1, l.rows(l.x.Data, l.in), l.weight(l.w.Data), 1, l.rows(l.y.Data, l.out))
}

func (l *linear) Backward() {
	dy := l.rows(l.y.Grad, l.out)
	blas32.Gemm(blas.Trans, blas.NoTrans, 1, dy, l.rows(l.x.Data, l.in), 1, l.weight(l.w.Grad))
	for i := range l.tape.Rows() {
		for j, g := range l.y.Grad[i*l.out : (i+1)*l.out] {
			l.b.Grad[j] += g
		}
	}
	if l.x.Grad != nil {
		blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, dy, l.weight(l.w.Data), 1, l.rows(l.x.Grad, l.in))
	}
}

func (l *linear) rows(data []float32, width int) blas32.General {
	return blas32.General{Rows: l.tape.Rows(), Cols: width, Stride: width, Data: data}
}

func (l *linear) weight(data []float32) blas32.General {
	return blas32.General{Rows: l.out, Cols: l.in, Stride: l.in, Data: data}
}
