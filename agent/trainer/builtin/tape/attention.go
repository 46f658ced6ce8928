package tape

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"tensorturn/domain"
)

// attention is causal multi-head attention over the places of each row.
type attention struct {
	tape                       *Tape
	x, y                       *Tensor
	places, heads, width, head int
	probs                      []float32   // full capacity: rows × heads × places × places
	scratch                    [][]float32 // of each lane: gradients of one head's probabilities
	scale                      float32
}

// Attention records softmax(q·kᵀ / √(width / heads), places so far only)·v for each head (Vaswani et al., "Attention is all
// you need", 2017, eq. 1). x holds q, k and v of each place one behind the other: rows of places × 3·width.
func Attention(t *Tape, x *Tensor, places, heads int) *Tensor {
	width := x.Width() / places / 3
	domain.Assert(x.Width() == 3*places*width && width%heads == 0, "attention has q, k and v for whole heads at each place")
	a := &attention{tape: t, x: x, places: places, heads: heads, width: width, head: width / heads,
		probs: aligned(t.capacity * heads * places * places), scratch: make([][]float32, maxLanes)}
	a.scale = float32(1 / math.Sqrt(float64(a.head)))
	a.y = t.Activation(places*width, true)
	t.Record(a)
	return a.y
}

// part gives the matrices of one head of one row: q, k, v as views of data, and its output as a view of out.
func (a *attention) part(i int, data, out []float32) (q, k, v, o blas32.General) {
	row, head := i/a.heads, i%a.heads
	view := func(which int) blas32.General {
		return blas32.General{Rows: a.places, Cols: a.head, Stride: 3 * a.width, Data: data[row*a.x.width+which*a.width+head*a.head : (row+1)*a.x.width]}
	}
	return view(0), view(1), view(2), blas32.General{Rows: a.places, Cols: a.head, Stride: a.width, Data: out[row*a.y.width+head*a.head : (row+1)*a.y.width]}
}

func (a *attention) Forward() {
	square := a.places * a.places
	split(a.tape.Rows()*a.heads, func(i, _ int) {
		q, k, v, o := a.part(i, a.x.Data, a.y.Data)
		probs := a.probs[i*square : (i+1)*square]
		blas32.Gemm(blas.NoTrans, blas.Trans, a.scale, q, k, 0, general(probs, a.places, a.places))
		for p := range a.places {
			causal(probs[p*a.places:(p+1)*a.places], p+1)
		}
		blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, general(probs, a.places, a.places), v, 0, o)
	})
}

// causal turns the first n scores into probabilities and all behind them into zeros.
func causal(row []float32, n int) {
	top := largest(row[:n])
	sum := 0.0
	for j, v := range row[:n] {
		e := math.Exp(float64(v) - top)
		sum += e
		row[j] = float32(e)
	}
	scale := float32(1 / sum)
	for j := range row[:n] {
		row[j] *= scale
	}
	clear(row[n:])
}

func (a *attention) Backward() {
	square := a.places * a.places
	split(a.tape.Rows()*a.heads, func(i, lane int) {
		if a.scratch[lane] == nil {
			a.scratch[lane] = aligned(square)
		}
		q, k, v, _ := a.part(i, a.x.Data, a.y.Data)
		dq, dk, dv, do := a.part(i, a.x.Grad, a.y.Grad)
		probs, ds := general(a.probs[i*square:(i+1)*square], a.places, a.places), general(a.scratch[lane], a.places, a.places)
		blas32.Gemm(blas.Trans, blas.NoTrans, 1, probs, do, 1, dv)
		blas32.Gemm(blas.NoTrans, blas.Trans, 1, do, v, 0, ds)
		for p := range a.places { // through the softmax: ds = p · (dp − Σ dp · p)
			row, pr := ds.Data[p*a.places:(p+1)*a.places], probs.Data[p*a.places:(p+1)*a.places]
			dot := 0.0
			for j, g := range row[:p+1] {
				dot += float64(float64(g) * float64(pr[j]))
			}
			d := float32(dot)
			for j := range row[:p+1] {
				row[j] = float32(pr[j] * (row[j] - d))
			}
			clear(row[p+1:])
		}
		blas32.Gemm(blas.NoTrans, blas.NoTrans, a.scale, ds, k, 1, dq)
		blas32.Gemm(blas.Trans, blas.NoTrans, a.scale, ds, q, 1, dk)
	})
}

// add is y = a + b, or y = a + b for every row where b is a parameter as long as a row.
type add struct{ a, b, y *Tensor }

// Add records the sum of two activations of equal width, or of an activation and a parameter as long as one of its rows.
func Add(t *Tape, a, b *Tensor) *Tensor {
	domain.Assert(a.Width() == b.Width(), "what is added is equally wide")
	op := &add{a: a, b: b, y: t.Activation(a.Width(), true)}
	t.Record(op)
	return op.y
}

func (o *add) Forward() {
	for at := 0; at < len(o.y.Data); at += len(o.b.Data) {
		y, x := o.y.Data[at:at+len(o.b.Data)], o.a.Data[at:at+len(o.b.Data)]
		for i, v := range o.b.Data {
			y[i] = x[i] + v
		}
	}
}

func (o *add) Backward() {
	for at := 0; at < len(o.y.Grad); at += len(o.b.Grad) {
		for i, g := range o.y.Grad[at : at+len(o.b.Grad)] {
			o.b.Grad[i] += g
		}
	}
	for i, g := range o.y.Grad {
		o.a.Grad[i] += g
	}
}
