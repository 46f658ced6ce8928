package tape

import (
	"math"
	"slices"
	"testing"
	"unsafe"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
)

// gonum's dot product sums in another order when its operand is not at a 16-byte boundary, so that bits would depend
// on the allocator. Every buffer must therefore be aligned, whatever its size.
func TestBuffersAreAligned(t *testing.T) {
	for n := 1; n < 3000; n++ {
		if at := uintptr(unsafe.Pointer(unsafe.SliceData(aligned(n)))); at%16 != 0 {
			t.Fatalf("%d values lie at %#x", n, at)
		}
	}
}

// The reason for the rule above: the same numbers at another alignment give other bits. If this fails, gonum has
// changed and the rule may go.
func TestAlignmentChangesBits(t *testing.T) {
	if blasIsPortable() {
		t.Skip("this platform has no vector kernel")
	}
	const n = 1001
	a, b := make([]float32, n), aligned(n+1)
	for i := range n {
		a[i] = float32(math.Sin(float64(i)))
		b[i] = float32(math.Cos(float64(i * i)))
	}
	straight := dot(a, b[:n])
	copy(b[1:], slices.Clone(b[:n]))
	if shifted := dot(a, b[1:]); shifted == straight {
		t.Error("the shifted operand gives the same bits")
	}
}

func dot(a, b []float32) float32 {
	return blas32.Dot(blas32.Vector{N: len(a), Inc: 1, Data: a}, blas32.Vector{N: len(b), Inc: 1, Data: b})
}

// blasIsPortable reports a product that is summed one by one.
func blasIsPortable() bool {
	a := []float32{1 << 24, 1, 1, 1, 1, 1, 1, 1}
	ones := aligned(8)
	for i := range ones {
		ones[i] = 1
	}
	return dot(a, ones) == 1<<24
}

// A Gemm must agree with the triple loop in every transposition that the ops use.
func TestProductsAgreeWithLoops(t *testing.T) {
	const m, k, n = 70, 67, 130 // several of gonum's blocks
	general := func(rows, cols int, label uint64) blas32.General {
		x := fill(&Tensor{Data: aligned(rows * cols)}, label)
		return blas32.General{Rows: rows, Cols: cols, Stride: cols, Data: x.Data}
	}
	at := func(g blas32.General, trans blas.Transpose, i, j int) float64 {
		if trans == blas.Trans {
			i, j = j, i
		}
		return float64(g.Data[i*g.Stride+j])
	}
	for _, c := range []struct {
		name   string
		ta, tb blas.Transpose
		a, b   blas32.General
	}{
		{"forward", blas.NoTrans, blas.Trans, general(m, k, 1), general(n, k, 2)},
		{"weight", blas.Trans, blas.NoTrans, general(k, m, 1), general(k, n, 2)},
		{"input", blas.NoTrans, blas.NoTrans, general(m, k, 1), general(k, n, 2)},
	} {
		out := general(m, n, 3)
		before := slices.Clone(out.Data)
		blas32.Gemm(c.ta, c.tb, 1, c.a, c.b, 1, out)
		for i := range m {
			for j := range n {
				want := float64(before[i*n+j])
				for l := range k {
					want += at(c.a, c.ta, i, l) * at(c.b, c.tb, l, j)
				}
				if got := float64(out.Data[i*n+j]); math.Abs(got-want) > 1e-4 {
					t.Fatalf("%s [%d,%d]: %v, want %v", c.name, i, j, got, want)
				}
			}
		}
	}
}

func TestCrossEntropyIsStable(t *testing.T) {
	tape := New(3)
	x := tape.Activation(3, true)
	loss := NewCrossEntropy(tape, x, x.Width())
	copy(x.Data, []float32{1e4, -1e4, 0, -1e4, -1e4, -1e4, 0, 0, 0})
	copy(loss.Labels(), []int{1, 0, 2})
	tape.Forward()
	if want := 2e4 + 2*math.Log(3); math.Abs(loss.Loss()-want) > 1e-6 {
		t.Errorf("loss %v, want %v", loss.Loss(), want)
	}
	if p := loss.Probabilities(); p[0] != 1 || p[1] != 0 || math.Abs(float64(p[4])-1./3) > 1e-7 {
		t.Errorf("probabilities %v", p)
	}
	x.Data[4] = float32(math.NaN())
	tape.Forward()
	if !math.IsNaN(loss.Loss()) {
		t.Error("a NaN vanished")
	}
}

func TestReLUKeepsNaN(t *testing.T) {
	tape := New(1)
	x := tape.Activation(3, true)
	y := ReLU(tape, x)
	copy(x.Data, []float32{float32(math.NaN()), -2, 3})
	tape.Forward()
	if y.Data[0] == y.Data[0] || y.Data[1] != 0 || y.Data[2] != 3 {
		t.Errorf("ReLU gives %v", y.Data)
	}
}
