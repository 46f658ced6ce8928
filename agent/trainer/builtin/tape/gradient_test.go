package tape

import (
	"math"
	"testing"

	"tensorturn/domain/permute"
)

// fill gives a tensor repeatable values in ±1, none nearer to zero than 0.05, where ReLU has its kink.
func fill(t *Tensor, label uint64) *Tensor {
	s := permute.NewSource(1, label)
	for i := range t.Data {
		v := 2*s.Float64() - 1
		t.Data[i] = float32(v + math.Copysign(0.05, v))
	}
	return t
}

// weighted ends a tape with Σ cᵢ·yᵢ, so that every element of y has a gradient of its own.
type weighted struct {
	y *Tensor
	c []float32
}

func (w *weighted) Forward() {}

func (w *weighted) Backward() {
	for i := range w.y.Grad {
		w.y.Grad[i] += w.c[i]
	}
}

func (w *weighted) value() float64 {
	sum := 0.0
	for i, v := range w.y.Data {
		sum += float64(v) * float64(w.c[i])
	}
	return sum
}

func weigh(t *Tape, y *Tensor) *weighted {
	w := &weighted{y: y, c: make([]float32, len(y.Data))}
	s := permute.NewSource(2)
	for i := range w.c {
		w.c[i] = float32(2*s.Float64() - 1)
	}
	t.Record(w)
	return w
}

// checkGradient compares the tape's gradient of value in every element of the tensors with central differences.
func checkGradient(t *testing.T, tape *Tape, value func() float64, tensors map[string]*Tensor) {
	t.Helper()
	const h = 1e-2
	tape.Forward()
	tape.Backward()
	for name, x := range tensors {
		for i, v := range x.Data {
			at := func(v float32) float64 {
				x.Data[i] = v
				tape.Forward()
				return value()
			}
			numeric := (at(v+h) - at(v-h)) / float64((v+h)-(v-h))
			at(v)
			if got := float64(x.Grad[i]); math.Abs(got-numeric) > 2e-3*max(1, math.Abs(numeric)) {
				t.Errorf("%s[%d]: gradient %g, difference quotient %g", name, i, got, numeric)
			}
		}
	}
}

func TestGradientLinear(t *testing.T) {
	tape, p := New(4), NewParams(3*5+3)
	x := fill(tape.Activation(5, true), 1)
	w, b := fill(p.Take(15), 2), fill(p.Take(3), 3)
	end := weigh(tape, Linear(tape, x, w, b))
	checkGradient(t, tape, end.value, map[string]*Tensor{"x": x, "w": w, "b": b})
}

// A tensor used twice gets both gradients: what a residual connection needs.
func TestGradientAddsUp(t *testing.T) {
	tape, p := New(3), NewParams(2*(4*4+4))
	x := fill(tape.Activation(4, true), 1)
	w1, b1 := fill(p.Take(16), 2), fill(p.Take(4), 3)
	w2, b2 := fill(p.Take(16), 4), fill(p.Take(4), 5)
	one := weigh(tape, Linear(tape, x, w1, b1))
	two := weigh(tape, Linear(tape, x, w2, b2))
	checkGradient(t, tape, func() float64 { return one.value() + two.value() }, map[string]*Tensor{"x": x, "w1": w1, "w2": w2})
}

func TestGradientReLU(t *testing.T) {
	tape := New(4)
	x := fill(tape.Activation(6, true), 1)
	end := weigh(tape, ReLU(tape, x))
	checkGradient(t, tape, end.value, map[string]*Tensor{"x": x})
}

func TestGradientCrossEntropy(t *testing.T) {
	tape := New(4)
	x := fill(tape.Activation(5, true), 1)
	loss := NewCrossEntropy(tape, x, x.Width())
	copy(loss.Labels(), []int{0, 4, 2, 2})
	checkGradient(t, tape, func() float64 { return loss.Loss() / 4 }, map[string]*Tensor{"x": x})
}

// The whole of a classifier, on a batch smaller than the tape.
func TestGradientNetwork(t *testing.T) {
	tape, p := New(8), NewParams(7*4+7+3*7+3)
	x := fill(tape.Activation(4, true), 1)
	w1, b1 := fill(p.Take(28), 2), fill(p.Take(7), 3)
	w2, b2 := fill(p.Take(21), 4), fill(p.Take(3), 5)
	loss := NewCrossEntropy(tape, Linear(tape, ReLU(tape, Linear(tape, x, w1, b1)), w2, b2), 3)
	tape.Resize(5)
	copy(loss.Labels(), []int{0, 1, 2, 0, 1})
	checkGradient(t, tape, func() float64 { return loss.Loss() / 5 }, map[string]*Tensor{"x": x, "w1": w1, "b1": b1, "w2": w2, "b2": b2})
}

// A gradient that is wrong by a tenth must not pass: the checker itself can fail.
func TestCheckerSeesAWrongGradient(t *testing.T) {
	tape := New(2)
	x := fill(tape.Activation(3, true), 1)
	end := weigh(tape, x)
	honest := append([]float32(nil), end.c...)
	end.c[4] *= 1.1
	tape.Forward()
	tape.Backward()
	end.c = honest
	wrong := 0
	for i := range x.Grad {
		if math.Abs(float64(x.Grad[i]-honest[i])) > 2e-3 {
			wrong++
		}
	}
	if wrong != 1 {
		t.Errorf("%d gradients are found wrong", wrong)
	}
}

func TestGradientEmbedding(t *testing.T) {
	tape, p := New(4), NewParams(5*3)
	x := tape.Activation(2, false)
	w := fill(p.Take(15), 2)
	end := weigh(tape, Embedding(tape, x, w, 5))
	copy(x.Data, []float32{0, 4, 4, 4, 2, 0, 7, -3}) // a symbol twice in a row, and two that are none
	checkGradient(t, tape, end.value, map[string]*Tensor{"w": w})
	x.Data[0] = float32(math.NaN())
	tape.Forward()
}
