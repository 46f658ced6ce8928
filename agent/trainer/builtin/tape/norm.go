package tape

import (
	"math"

	"tensorturn/domain"
)

// normEpsilon keeps a deviation from zero: torch's value.
const normEpsilon = 1e-5

// layerNorm takes each group of width values of a row to mean 0 and variance 1 (Ba et al., "Layer normalization", 2016, eq. 3).
type layerNorm struct {
	tape    *Tape
	x, y    *Tensor
	w, b    *Tensor
	width   int
	tile    int         // groups of a piece of work
	mean    []float32   // of each group, full capacity
	inverse []float32   // 1 / deviation
	partial [][]float32 // of each tile: the gradients of w, then of b
}

// normTile is the number of values that one piece of work normalises.
const normTile = 16 << 10

// LayerNorm records w · (x − mean) / √(variance + 1e-5) + b over groups as wide as w.
func LayerNorm(t *Tape, x, w, b *Tensor) *Tensor {
	width := w.Width()
	domain.Assert(x.Width()%width == 0 && b.Width() == width, "a row has whole groups to normalise")
	groups := t.capacity * (x.Width() / width)
	l := &layerNorm{tape: t, x: x, w: w, b: b, width: width, tile: max(1, normTile/width), mean: aligned(groups), inverse: aligned(groups)}
	l.partial = make([][]float32, tiles(groups, l.tile))
	l.y = t.Activation(x.Width(), true)
	t.Record(l)
	return l.y
}

func (l *layerNorm) Forward() {
	groups := len(l.x.Data) / l.width
	split(tiles(groups, l.tile), func(part, _ int) {
		for g := part * l.tile; g < min((part+1)*l.tile, groups); g++ {
			x, y := l.x.Data[g*l.width:(g+1)*l.width], l.y.Data[g*l.width:(g+1)*l.width]
			mean, variance := moments(x)
			inverse := float32(1 / math.Sqrt(variance+normEpsilon))
			l.mean[g], l.inverse[g] = float32(mean), inverse
			m, w, b := float32(mean), l.w.Data[:len(x)], l.b.Data[:len(x)]
			for j, v := range x {
				y[j] = float32((v-m)*inverse*w[j]) + b[j]
			}
		}
	})
}

// moments gives mean and population variance, in float64 by four interleaved sums.
func moments(x []float32) (mean, variance float64) {
	var s [4]float64
	for i, v := range x {
		s[i&3] += float64(v)
	}
	n := float64(len(x))
	mean = ((s[0] + s[1]) + (s[2] + s[3])) / n
	s = [4]float64{}
	for i, v := range x {
		d := float64(v) - mean
		s[i&3] += float64(d * d)
	}
	return mean, ((s[0] + s[1]) + (s[2] + s[3])) / n
}

func (l *layerNorm) Backward() {
	groups := len(l.x.Data) / l.width
	parts := tiles(groups, l.tile)
	split(parts, func(part, _ int) {
		if l.partial[part] == nil {
			l.partial[part] = aligned(2 * l.width)
		}
		clear(l.partial[part])
		for g := part * l.tile; g < min((part+1)*l.tile, groups); g++ {
			l.group(g, l.partial[part][:l.width], l.partial[part][l.width:])
		}
	})
	for _, p := range l.partial[:parts] {
		for j := range l.width {
			l.w.Grad[j] += p[j]
			l.b.Grad[j] += p[l.width+j]
		}
	}
}

// group works out the gradients of one group: with x̂ the normalised values and h = dy · w,
// dx = (h − mean(h) − x̂ · mean(h · x̂)) / deviation.
func (l *layerNorm) group(g int, dw, db []float32) {
	x, dy := l.x.Data[g*l.width:(g+1)*l.width], l.y.Grad[g*l.width:(g+1)*l.width]
	m, inverse := l.mean[g], l.inverse[g]
	sum, dot := 0.0, 0.0
	for j, d := range dy {
		hat := (x[j] - m) * inverse
		h := d * l.w.Data[j]
		dw[j] += float32(d * hat)
		db[j] += d
		sum += float64(h)
		dot += float64(float64(h) * float64(hat))
	}
	if l.x.Grad == nil {
		return
	}
	n := float64(len(x))
	mean, slope := float32(sum/n), float32(dot/n)
	dx := l.x.Grad[g*l.width : (g+1)*l.width]
	for j, d := range dy {
		hat := (x[j] - m) * inverse
		dx[j] += float32((float32(d*l.w.Data[j]) - mean - float32(hat*slope)) * inverse)
	}
}

// BatchNorm takes each channel to mean 0 and variance 1 over the batch and all places (Ioffe and Szegedy, "Batch
// normalization", 2015, algorithm 1), and by its running statistics when the tape does not train.
type BatchNorm struct {
	tape               *Tape
	x, y               *Tensor
	w, b               *Tensor
	runMean, runVar    *Tensor
	channels           int
	mean, inverse      []float32
	nextMean, nextVar  []float32 // running statistics after this batch
	fresh, byBatch     bool      // next… is to be committed; the batch's own statistics are in use
	sum, square, grads []float64
}

// batchMomentum is the part of a batch in the running statistics: torch's value.
const batchMomentum = 0.1

// NewBatchNorm records w · (x − mean) / √(variance + 1e-5) + b of each channel. The running statistics are parameters
// without a gradient; Commit moves them.
func NewBatchNorm(t *Tape, x, w, b, runMean, runVar *Tensor) (*BatchNorm, *Tensor) {
	c := w.Width()
	domain.Assert(x.Width()%c == 0 && b.Width() == c && runMean.Width() == c && runVar.Width() == c, "a row has whole sets of channels")
	n := &BatchNorm{tape: t, x: x, w: w, b: b, runMean: runMean, runVar: runVar, channels: c, mean: aligned(c), inverse: aligned(c),
		nextMean: aligned(c), nextVar: aligned(c), sum: make([]float64, c), square: make([]float64, c), grads: make([]float64, 2*c)}
	n.y = t.Activation(x.Width(), true)
	t.Record(n)
	return n, n.y
}

// Forward implements Op. A batch of one value a channel has no variance: it is taken like one that is not trained on.
func (n *BatchNorm) Forward() {
	count := len(n.x.Data) / n.channels
	n.byBatch = n.tape.training && count > 1
	if n.byBatch {
		n.measure(float64(count))
	} else {
		n.fresh = n.tape.training // they stay as they are, whatever the optimizer's step does to them
		copy(n.nextMean, n.runMean.Data)
		copy(n.nextVar, n.runVar.Data)
		for c := range n.channels {
			n.mean[c], n.inverse[c] = n.runMean.Data[c], float32(1/math.Sqrt(float64(n.runVar.Data[c])+normEpsilon))
		}
	}
	for at := 0; at < len(n.x.Data); at += n.channels {
		y := n.y.Data[at : at+n.channels]
		for c, v := range n.x.Data[at : at+n.channels] {
			y[c] = float32((v-n.mean[c])*n.inverse[c]*n.w.Data[c]) + n.b.Data[c]
		}
	}
}

// measure takes the batch's statistics, two passes in float64 in the order of the rows.
func (n *BatchNorm) measure(count float64) {
	clear(n.sum)
	clear(n.square)
	for at := 0; at < len(n.x.Data); at += n.channels {
		for c, v := range n.x.Data[at : at+n.channels] {
			n.sum[c] += float64(v)
		}
	}
	for c := range n.sum {
		n.sum[c] /= count
	}
	for at := 0; at < len(n.x.Data); at += n.channels {
		for c, v := range n.x.Data[at : at+n.channels] {
			d := float64(v) - n.sum[c]
			n.square[c] += float64(d * d)
		}
	}
	for c := range n.sum {
		n.mean[c], n.inverse[c] = float32(n.sum[c]), float32(1/math.Sqrt(n.square[c]/count+normEpsilon))
		n.nextMean[c] = float32(float64((1-batchMomentum)*float64(n.runMean.Data[c])) + float64(batchMomentum*n.sum[c]))
		n.nextVar[c] = float32(float64((1-batchMomentum)*float64(n.runVar.Data[c])) + float64(batchMomentum*(n.square[c]/(count-1))))
	}
	n.fresh = true
}

// Commit puts the running statistics of the last Forward in place. The trainer calls it after the optimizer's step, which
// may have decayed them, so that a step that is refused leaves them.
func (n *BatchNorm) Commit() {
	if n.fresh {
		copy(n.runMean.Data, n.nextMean)
		copy(n.runVar.Data, n.nextVar)
	}
	n.fresh = false
}

// Backward implements Op: dx = w / deviation · (dy − mean(dy) − x̂ · mean(dy · x̂)).
func (n *BatchNorm) Backward() {
	clear(n.grads)
	sum, dot := n.grads[:n.channels], n.grads[n.channels:]
	for at := 0; at < len(n.x.Data); at += n.channels {
		x := n.x.Data[at : at+n.channels]
		for c, d := range n.y.Grad[at : at+n.channels] {
			sum[c] += float64(d)
			dot[c] += float64(float64(d) * float64((x[c]-n.mean[c])*n.inverse[c]))
		}
	}
	for c := range n.channels {
		n.b.Grad[c] += float32(sum[c])
		n.w.Grad[c] += float32(dot[c])
	}
	if n.x.Grad == nil {
		return
	}
	count := float64(len(n.x.Data) / n.channels)
	for c := range n.channels {
		sum[c], dot[c] = sum[c]/count, dot[c]/count
		if !n.byBatch { // the statistics are constants
			sum[c], dot[c] = 0, 0
		}
	}
	for at := 0; at < len(n.x.Data); at += n.channels {
		x, dx := n.x.Data[at:at+n.channels], n.x.Grad[at:at+n.channels]
		for c, d := range n.y.Grad[at : at+n.channels] {
			hat := (x[c] - n.mean[c]) * n.inverse[c]
			dx[c] += float32((d - float32(sum[c]) - float32(hat*float32(dot[c]))) * n.inverse[c] * n.w.Data[c])
		}
	}
}
