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
	places  int // of a row that it is applied to
}

// Linear records y = x·Wᵀ + b and returns y [rows, places × out]. w holds out × in values row-major, b out values; a row of
// x has in values, or in values for each of several places.
func Linear(t *Tape, x, w, b *Tensor) *Tensor {
	out := b.Width()
	in := w.Width() / out
	domain.Assert(w.Width() == in*out && x.Width()%in == 0, "a linear layer's weight is out × in")
	places := x.Width() / in
	y := t.Activation(places*out, true)
	t.Record(&linear{tape: t, x: x, y: y, w: w, b: b, in: in, out: out, places: places})
	return y
}

func (l *linear) Forward() {
	for i := range l.tape.Rows() * l.places {
		copy(l.y.Data[i*l.out:], l.b.Data)
	}
	blas32.Gemm(blas.NoTrans, blas.Trans, 1, l.rows(l.x.Data, l.in), l.weight(l.w.Data), 1, l.rows(l.y.Data, l.out))
}

func (l *linear) Backward() {
	dy := l.rows(l.y.Grad, l.out)
	blas32.Gemm(blas.Trans, blas.NoTrans, 1, dy, l.rows(l.x.Data, l.in), 1, l.weight(l.w.Grad))
	for i := range l.tape.Rows() * l.places {
		for j, g := range l.y.Grad[i*l.out : (i+1)*l.out] {
			l.b.Grad[j] += g
		}
	}
	if l.x.Grad != nil {
		blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, dy, l.weight(l.w.Data), 1, l.rows(l.x.Grad, l.in))
	}
}

func (l *linear) rows(data []float32, width int) blas32.General {
	return blas32.General{Rows: l.tape.Rows() * l.places, Cols: width, Stride: width, Data: data}
}

func (l *linear) weight(data []float32) blas32.General {
	return blas32.General{Rows: l.out, Cols: l.in, Stride: l.in, Data: data}
}
