package tape

import "tensorturn/domain"

// embedding is y = the rows of W that x names, one behind the other.
type embedding struct {
	tape    *Tape
	x, y, w *Tensor
	width   int // values of one symbol
	symbols int
}

// Embedding records the look-up of each value of x, a whole number from 0 to symbols−1, in w [symbols, width], and returns
// [rows, places × width]. The caller vouches for the numbers; one outside is held to the nearest symbol.
func Embedding(t *Tape, x, w *Tensor, symbols int) *Tensor {
	domain.Assert(x.Grad == nil && w.Width()%symbols == 0, "an embedding looks up plain input in whole rows")
	e := &embedding{tape: t, x: x, w: w, width: w.Width() / symbols, symbols: symbols}
	e.y = t.Activation(x.Width()*e.width, true)
	t.Record(e)
	return e.y
}

func (e *embedding) Forward() {
	for i, v := range e.x.Data {
		copy(e.y.Data[i*e.width:(i+1)*e.width], e.w.Data[e.symbol(v)*e.width:])
	}
}

// Backward adds in the order of the batch: equal symbols share a row.
func (e *embedding) Backward() {
	for i, v := range e.x.Data {
		from := e.symbol(v) * e.width
		grad := e.w.Grad[from : from+e.width]
		for j, g := range e.y.Grad[i*e.width : (i+1)*e.width] {
			grad[j] += g
		}
	}
}

func (e *embedding) symbol(v float32) int {
	if !(v >= 0) { // NaN too: an index must be one whatever the data holds
		return 0
	}
	return int(min(v, float32(e.symbols-1)))
}
