package tape

import (
	"math"
	"runtime"
	"slices"
	"testing"
)

// Every operation against difference quotients, in geometries with edges: strides, rests, several channels, batches that
// are smaller than the tape.
func TestGradients(t *testing.T) {
	for name, build := range map[string]func(t *Tape, p *Params) (*Tensor, map[string]*Tensor){
		"convolution": func(tp *Tape, p *Params) (*Tensor, map[string]*Tensor) {
			x, w, b := fill(tp.Activation(2*5*4, true), 1), fill(p.Take(3*2*3*3), 2), fill(p.Take(3), 3)
			return Conv(tp, x, w, b, Window{2, 5, 4, 3, 1, 1}), map[string]*Tensor{"x": x, "w": w, "b": b}
		},
		"convolution with a stride": func(tp *Tape, p *Params) (*Tensor, map[string]*Tensor) {
			x, w, b := fill(tp.Activation(2*5*6, true), 1), fill(p.Take(3*2*5*5), 2), fill(p.Take(3), 3)
			return Conv(tp, x, w, b, Window{2, 5, 6, 5, 2, 2}), map[string]*Tensor{"x": x, "w": w, "b": b}
		},
		"largest of a window": func(tp *Tape, p *Params) (*Tensor, map[string]*Tensor) {
			x := fill(tp.Activation(3*5*4, true), 1)
			for i := range x.Data { // no two so near that a step changes the order
				x.Data[i] = float32((i*37)%len(x.Data)) / 20
			}
			return MaxPool(tp, x, Window{3, 5, 4, 2, 2, 0}), map[string]*Tensor{"x": x}
		},
		"mean of a window": func(tp *Tape, p *Params) (*Tensor, map[string]*Tensor) {
			x := fill(tp.Activation(3*5*4, true), 1)
			return AvgPool(tp, x, Window{3, 5, 4, 2, 2, 0}), map[string]*Tensor{"x": x}
		},
		"flatten": func(tp *Tape, p *Params) (*Tensor, map[string]*Tensor) {
			x := fill(tp.Activation(3*6, true), 1)
			return Flatten(tp, Unflatten(tp, Flatten(tp, x, 3), 3), 3), map[string]*Tensor{"x": x}
		},
		"layer norm": func(tp *Tape, p *Params) (*Tensor, map[string]*Tensor) {
			x, w, b := fill(tp.Activation(2*5, true), 1), fill(p.Take(5), 2), fill(p.Take(5), 3)
			return LayerNorm(tp, x, w, b), map[string]*Tensor{"x": x, "w": w, "b": b}
		},
		"batch norm": func(tp *Tape, p *Params) (*Tensor, map[string]*Tensor) {
			x, w, b := fill(tp.Activation(2*3, true), 1), fill(p.Take(3), 2), fill(p.Take(3), 3)
			m, v := p.Take(3), p.Take(3)
			tp.Train(true)
			_, y := NewBatchNorm(tp, x, w, b, m, v)
			return y, map[string]*Tensor{"x": x, "w": w, "b": b}
		},
		"batch norm by running statistics": func(tp *Tape, p *Params) (*Tensor, map[string]*Tensor) {
			x, w, b := fill(tp.Activation(2*3, true), 1), fill(p.Take(3), 2), fill(p.Take(3), 3)
			m, v := fill(p.Take(3), 4), p.Take(3)
			copy(v.Data, []float32{1, 0.25, 4})
			_, y := NewBatchNorm(tp, x, w, b, m, v)
			return y, map[string]*Tensor{"x": x, "w": w, "b": b}
		},
		"attention": func(tp *Tape, p *Params) (*Tensor, map[string]*Tensor) {
			x := fill(tp.Activation(3*5*4, true), 1)
			return Attention(tp, x, 5, 2), map[string]*Tensor{"x": x}
		},
		"sum with a parameter": func(tp *Tape, p *Params) (*Tensor, map[string]*Tensor) {
			x, b := fill(tp.Activation(6, true), 1), fill(p.Take(6), 2)
			return Add(tp, x, b), map[string]*Tensor{"x": x, "b": b}
		},
		"residual": func(tp *Tape, p *Params) (*Tensor, map[string]*Tensor) {
			x, w, b := fill(tp.Activation(2*3, true), 1), fill(p.Take(9), 2), fill(p.Take(3), 3)
			return Add(tp, x, Linear(tp, x, w, b)), map[string]*Tensor{"x": x, "w": w, "b": b}
		},
	} {
		t.Run(name, func(t *testing.T) {
			tp, p := New(4), NewParams(200)
			y, tensors := build(tp, p)
			end := weigh(tp, y)
			checkGradient(t, tp, end.value, tensors)
		})
	}
}

func TestGradientSquaredError(t *testing.T) {
	tp := New(5)
	x := fill(tp.Activation(1, true), 1)
	loss := NewSquaredError(tp, x)
	tp.Resize(4)
	copy(loss.Targets(), []float32{0, 4, -2, 2})
	checkGradient(t, tp, func() float64 { return loss.Loss() / 4 }, map[string]*Tensor{"x": x})
}

func TestGradientCrossEntropyOverPlaces(t *testing.T) {
	tp := New(3)
	x := fill(tp.Activation(2*4, true), 1)
	loss := NewCrossEntropy(tp, x, 4)
	copy(loss.Labels(), []int{0, 3, 2, 2, 1, 0})
	checkGradient(t, tp, func() float64 { return loss.Loss() / 3 }, map[string]*Tensor{"x": x})
}

// A convolution is what its formula says, in torch's order.
func TestConvolutionAgreesWithTheSum(t *testing.T) {
	const c, h, wd, out, k, stride, pad = 2, 5, 4, 3, 3, 2, 1
	tp, p := New(2), NewParams(out*c*k*k+out)
	raw := fill(tp.Activation(c*h*wd, false), 1)
	w, b := fill(p.Take(out*c*k*k), 2), fill(p.Take(out), 3)
	g := Window{c, h, wd, k, stride, pad}
	y := Flatten(tp, Conv(tp, Unflatten(tp, raw, c), w, b, g), out)
	tp.Forward()
	oh, ow := g.outHeight(), g.outWidth()
	for n := range 2 {
		for o := range out {
			for oy := range oh {
				for ox := range ow {
					want := float64(b.Data[o])
					for ci := range c {
						for i := range k {
							for j := range k {
								yy, xx := oy*stride-pad+i, ox*stride-pad+j
								if yy < 0 || yy >= h || xx < 0 || xx >= wd {
									continue
								}
								want += float64(w.Data[((o*c+ci)*k+i)*k+j]) * float64(raw.Data[n*c*h*wd+(ci*h+yy)*wd+xx])
							}
						}
					}
					if got := float64(y.Data[((n*out+o)*oh+oy)*ow+ox]); math.Abs(got-want) > 1e-5 {
						t.Fatalf("picture %d, channel %d, place %d, %d: %v, want %v", n, o, oy, ox, got, want)
					}
				}
			}
		}
	}
}

// Attention looks at no later place: another last place changes the last output alone.
func TestAttentionIsCausal(t *testing.T) {
	tp := New(1)
	x := fill(tp.Activation(3*4*6, true), 1)
	y := Attention(tp, x, 6, 2)
	tp.Forward()
	before := slices.Clone(y.Data)
	for i := len(x.Data) - 12; i < len(x.Data); i++ {
		x.Data[i] += 1
	}
	tp.Forward()
	if !slices.Equal(before[:20], y.Data[:20]) || slices.Equal(before[20:], y.Data[20:]) {
		t.Error("a later place is seen, or the own one is not")
	}
}

func TestBatchNormCommits(t *testing.T) {
	tp, p := New(4), NewParams(4)
	x := tp.Activation(1, true)
	w, b, m, v := p.Take(1), p.Take(1), p.Take(1), p.Take(1)
	w.Data[0], v.Data[0] = 1, 1
	n, y := NewBatchNorm(tp, x, w, b, m, v)
	copy(x.Data, []float32{1, 2, 3, 6})
	tp.Forward()
	n.Commit()
	if m.Data[0] != 0 || v.Data[0] != 1 || math.Abs(float64(y.Data[3])-6/math.Sqrt(1+1e-5)) > 1e-6 {
		t.Errorf("a batch that is not trained on moves the statistics to %v, %v", m.Data, v.Data)
	}
	tp.Train(true)
	tp.Forward()
	v.Data[0] = 0.5 // what an optimizer's decay may have done
	n.Commit()
	if math.Abs(float64(m.Data[0])-0.3) > 1e-6 || math.Abs(float64(v.Data[0])-(0.9+0.1*14/3.)) > 1e-6 {
		t.Errorf("running mean %v and variance %v", m.Data[0], v.Data[0])
	}
	if math.Abs(float64(y.Data[0])+2/math.Sqrt(3.5+1e-5)) > 1e-6 {
		t.Errorf("normalised to %v", y.Data)
	}
	tp.Resize(1)
	tp.Forward()
	mean, variance := m.Data[0], v.Data[0]
	m.Data[0], v.Data[0] = mean/2, variance/2 // decay
	n.Commit()
	if m.Data[0] != mean || v.Data[0] != variance {
		t.Errorf("a batch of one moves the statistics from %v, %v to %v, %v", mean, variance, m.Data[0], v.Data[0])
	}
}

// The bits of a convolutional and an attentive network do not depend on the number of processors.
func TestBitsAtAnyNumberOfProcessors(t *testing.T) {
	grads := func(procs int) []float32 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		tp, p := New(64), NewParams(16*9+16+32*16*9+32+2*16+3*16*16+48)
		x := fill(tp.Activation(144, false), 1)
		y := Conv(tp, x, fill(p.Take(16*9), 2), fill(p.Take(16), 3), Window{1, 12, 12, 3, 1, 1})
		y = MaxPool(tp, y, Window{16, 12, 12, 2, 2, 0})
		y = LayerNorm(tp, y, fill(p.Take(16), 4), fill(p.Take(16), 5))
		qkv := Linear(tp, y, fill(p.Take(3*16*16), 6), fill(p.Take(48), 7))
		y = Attention(tp, qkv, 36, 4)
		y = Conv(tp, y, fill(p.Take(32*16*9), 8), fill(p.Take(32), 9), Window{16, 6, 6, 3, 1, 1})
		loss := NewCrossEntropy(tp, y, 32)
		for i := range loss.Labels() {
			loss.Labels()[i] = i % 32
		}
		tp.Forward()
		tp.Backward()
		return append(p.Grad, float32(loss.Loss()))
	}
	one := grads(1)
	for _, procs := range []int{2, 7} {
		if !slices.Equal(one, grads(procs)) {
			t.Errorf("%d processors give other bits than one", procs)
		}
	}
}

// What a convolution says that it needs is what it takes.
func TestConvBytes(t *testing.T) {
	for _, g := range []Window{{Channels: 3, Height: 8, Width: 8, Kernel: 3, Stride: 1, Pad: 1}, {Channels: 16, Height: 40, Width: 40, Kernel: 5, Stride: 2, Pad: 2}} {
		const rows, out = 37, 4
		tp, p := New(rows), NewParams(out*g.Kernel*g.Kernel*g.Channels+out)
		x := tp.Activation(g.Channels*g.Height*g.Width, true)
		Conv(tp, x, p.Take(out*g.Kernel*g.Kernel*g.Channels), p.Take(out), g)
		tp.Train(true)
		tp.Forward()
		tp.Backward()
		c := tp.ops[0].(*conv)
		took, scratch := len(c.turned), 0
		for _, part := range c.partial {
			took += len(part)
		}
		for _, lane := range c.cols {
			scratch = max(scratch, len(lane))
		}
		lanes := min(len(c.partial), maxLanes) // as many as the largest machine has
		if said := g.ConvBytes(out, rows); said != float64(4*(took+lanes*scratch)) {
			t.Errorf("%+v: %v bytes said, %d taken", g, said, 4*(took+lanes*scratch))
		}
	}
}
