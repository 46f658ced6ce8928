package tape

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"tensorturn/domain"
)

// Pictures lie in memory as height × width × channels: what a convolution gives is then a product of rows, and a window
// of one line of the picture is one piece of memory. Files hold torch's order; Flatten turns one into the other.

// Window is the geometry of a convolution or pool over pictures of Channels × Height × Width.
type Window struct {
	Channels, Height, Width int
	Kernel, Stride, Pad     int
}

func (w Window) outHeight() int { return (w.Height+2*w.Pad-w.Kernel)/w.Stride + 1 }
func (w Window) outWidth() int  { return (w.Width+2*w.Pad-w.Kernel)/w.Stride + 1 }

// tileValues is about how many unrolled values one piece of work holds: they stay in a processor's own cache.
const tileValues = 64 << 10

// conv is a convolution as a product: windows are unrolled into rows of kernel × kernel × channels (Chellapilla et al.,
// "High performance convolutional neural networks for document processing", 2006).
type conv struct {
	Window
	tape    *Tape
	x, y    *Tensor
	w, b    *Tensor
	out     int
	places  int         // outputs of one row and channel
	depth   int         // values of one window
	tile    int         // rows of a piece of work
	turned  []float32   // w as out × kernel × kernel × channels
	cols    [][]float32 // scratch of each lane: unrolled windows
	partial [][]float32 // of each tile: its part of turned's gradient, then of b's
}

// Conv records y[o] = b[o] + Σ w[o, c, i, j] · x[c, ...] over pictures, w [out, channels, kernel, kernel] as torch stores it.
func Conv(t *Tape, x, w, b *Tensor, g Window) *Tensor {
	out := b.Width()
	c := &conv{Window: g, tape: t, x: x, w: w, b: b, out: out, places: g.outHeight() * g.outWidth(), depth: g.Kernel * g.Kernel * g.Channels}
	domain.Assert(x.Width() == g.Channels*g.Height*g.Width && w.Width() == out*c.depth, "a convolution's tensors fit its window")
	c.tile = g.tile(t.capacity)
	c.turned = aligned(w.Width())
	c.partial = make([][]float32, tiles(t.capacity, c.tile))
	c.cols = make([][]float32, maxLanes)
	c.y = t.Activation(c.places*out, true)
	t.Record(c)
	return c.y
}

// tile is how many rows of a batch one piece of work holds.
func (w Window) tile(capacity int) int {
	return max(1, min(capacity, tileValues/(w.outHeight()*w.outWidth()*w.Kernel*w.Kernel*w.Channels)))
}

// ConvBytes is the memory that a convolution to out channels needs beside its tensors, in batches of at most capacity rows: its part of
// the gradient for every tile, the unrolled windows of every lane, and the turned weight.
func (w Window) ConvBytes(out, capacity int) float64 {
	places, depth := float64(w.outHeight()*w.outWidth()), float64(w.Kernel*w.Kernel*w.Channels)
	parts, weight := tiles(capacity, w.tile(capacity)), depth*float64(out)
	windows := 2 * float64(w.tile(capacity)) * places * depth
	return 4 * (float64(parts)*(weight+float64(out)) + float64(min(parts, maxLanes))*windows + weight)
}

// turn reorders the weight's channels behind the window's places, or back, adding.
func (c *conv) turn(add bool, turned, weight []float32) {
	area := c.Kernel * c.Kernel
	for o := range c.out {
		for k := range c.Channels {
			for at := range area {
				t, w := o*c.depth+at*c.Channels+k, (o*c.Channels+k)*area+at
				if add {
					weight[w] += turned[t]
				} else {
					turned[t] = weight[w]
				}
			}
		}
	}
}

// scratch gives a lane its unrolled windows.
func (c *conv) scratch(lane int) []float32 {
	if c.cols[lane] == nil {
		c.cols[lane] = aligned(2 * c.tile * c.places * c.depth)
	}
	return c.cols[lane]
}

func (c *conv) bounds(tile int) (from, n int) {
	from = tile * c.tile
	return from, min(c.tile, c.tape.Rows()-from)
}

func (c *conv) Forward() {
	c.turn(false, c.turned, c.w.Data)
	split(tiles(c.tape.Rows(), c.tile), func(part, lane int) {
		from, n := c.bounds(part)
		cols := c.scratch(lane)
		c.unroll(cols, from, n)
		y := c.y.Data[from*c.places*c.out : (from+n)*c.places*c.out]
		for i := 0; i < len(y); i += c.out {
			copy(y[i:i+c.out], c.b.Data)
		}
		blas32.Gemm(blas.NoTrans, blas.Trans, 1, general(cols, n*c.places, c.depth), general(c.turned, c.out, c.depth), 1, general(y, n*c.places, c.out))
	})
}

func (c *conv) Backward() {
	parts := tiles(c.tape.Rows(), c.tile)
	split(parts, c.backward)
	for _, p := range c.partial[:parts] { // in order, whoever made them
		c.turn(true, p[:len(c.turned)], c.w.Grad)
		for o, g := range p[len(c.turned):][:c.out] {
			c.b.Grad[o] += g
		}
	}
}

// backward works out one tile's part of every gradient.
func (c *conv) backward(part, lane int) {
	from, n := c.bounds(part)
	if c.partial[part] == nil {
		c.partial[part] = aligned(len(c.turned) + c.out)
	}
	sums := c.partial[part]
	clear(sums)
	cols := c.scratch(lane)
	half := len(cols) / 2
	c.unroll(cols[:half], from, n)
	dy := c.y.Grad[from*c.places*c.out : (from+n)*c.places*c.out]
	blas32.Gemm(blas.Trans, blas.NoTrans, 1, general(dy, n*c.places, c.out), general(cols, n*c.places, c.depth), 1, general(sums[:len(c.turned)], c.out, c.depth))
	bias := sums[len(c.turned):][:c.out]
	for i := 0; i < len(dy); i += c.out {
		for o, g := range dy[i : i+c.out] {
			bias[o] += g
		}
	}
	if c.x.Grad == nil {
		return
	}
	back := cols[half:]
	blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, general(dy, n*c.places, c.out), general(c.turned, c.out, c.depth), 0, general(back, n*c.places, c.depth))
	c.fold(back, from, n)
}

// unroll writes the windows of n rows from row from, zeros where a window looks over the edge.
func (c *conv) unroll(cols []float32, from, n int) {
	c.windows(from, n, func(at, line, length, skip int) {
		dst := cols[at : at+c.Kernel*c.Channels]
		if length <= 0 {
			clear(dst)
			return
		}
		clear(dst[:skip])
		copy(dst[skip:], c.x.Data[line:line+length])
		clear(dst[skip+length:])
	})
}

// fold adds the gradients of windows to those of the pictures.
func (c *conv) fold(cols []float32, from, n int) {
	c.windows(from, n, func(at, line, length, skip int) {
		if length <= 0 {
			return
		}
		dst := c.x.Grad[line : line+length]
		for i, g := range cols[at+skip : at+skip+length] {
			dst[i] += g
		}
	})
}

// windows visits every line of every window: at is its place in the unrolled rows, line where its part within the picture
// begins, length its values there (none: it lies outside), skip the values before them.
func (c *conv) windows(from, n int, visit func(at, line, length, skip int)) {
	at, run := 0, c.Kernel*c.Channels
	for r := from; r < from+n; r++ {
		base := r * c.Height * c.Width * c.Channels
		for oy := range c.outHeight() {
			for ox := range c.outWidth() {
				left := ox*c.Stride - c.Pad
				first, last := max(left, 0), min(left+c.Kernel, c.Width)
				for k := range c.Kernel {
					y := oy*c.Stride - c.Pad + k
					if y < 0 || y >= c.Height {
						visit(at, 0, 0, 0)
					} else {
						visit(at, base+(y*c.Width+first)*c.Channels, (last-first)*c.Channels, (first-left)*c.Channels)
					}
					at += run
				}
			}
		}
	}
}

func general(data []float32, rows, cols int) blas32.General {
	return blas32.General{Rows: rows, Cols: cols, Stride: cols, Data: data}
}
