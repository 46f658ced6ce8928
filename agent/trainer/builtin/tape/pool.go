package tape

import "tensorturn/domain"

// maxPool is the largest value of each window; the first of equals has the gradient.
type maxPool struct {
	Window
	tape *Tape
	x, y *Tensor
	from []int32 // full capacity: place in the row of each output's value
}

// MaxPool records the largest value of each window of each channel.
func MaxPool(t *Tape, x *Tensor, g Window) *Tensor {
	domain.Assert(x.Width() == g.Channels*g.Height*g.Width && g.Pad == 0, "a pool's window fits its picture")
	m := &maxPool{Window: g, tape: t, x: x}
	m.y = t.Activation(g.outHeight()*g.outWidth()*g.Channels, true)
	m.from = make([]int32, t.capacity*m.y.Width())
	t.Record(m)
	return m.y
}

func (m *maxPool) Forward() {
	split(m.tape.Rows(), func(r, _ int) {
		x, y, from := m.x.row(r), m.y.row(r), m.from[r*m.y.width:(r+1)*m.y.width]
		at := 0
		m.each(func(corner int) {
			for c := range m.Channels {
				best := corner + c
				for i := range m.Kernel {
					for j := range m.Kernel {
						if p := corner + (i*m.Width+j)*m.Channels + c; x[p] > x[best] || x[p] != x[p] {
							best = p
						}
					}
				}
				y[at], from[at] = x[best], int32(best)
				at++
			}
		})
	})
}

func (m *maxPool) Backward() {
	if m.x.Grad == nil {
		return
	}
	split(m.tape.Rows(), func(r, _ int) {
		dx := m.x.Grad[r*m.x.width : (r+1)*m.x.width]
		from := m.from[r*m.y.width : (r+1)*m.y.width]
		for i, g := range m.y.Grad[r*m.y.width : (r+1)*m.y.width] {
			dx[from[i]] += g
		}
	})
}

// each visits the windows of one picture by their first value.
func (w Window) each(visit func(corner int)) {
	for oy := range w.outHeight() {
		for ox := range w.outWidth() {
			visit((oy*w.Stride*w.Width + ox*w.Stride) * w.Channels)
		}
	}
}

// avgPool is the mean of each window.
type avgPool struct {
	Window
	tape *Tape
	x, y *Tensor
}

// AvgPool records the mean of each window of each channel.
func AvgPool(t *Tape, x *Tensor, g Window) *Tensor {
	domain.Assert(x.Width() == g.Channels*g.Height*g.Width && g.Pad == 0, "a pool's window fits its picture")
	a := &avgPool{Window: g, tape: t, x: x, y: t.Activation(g.outHeight()*g.outWidth()*g.Channels, true)}
	t.Record(a)
	return a.y
}

func (a *avgPool) Forward() {
	scale := 1 / float32(a.Kernel*a.Kernel)
	for r := range a.tape.Rows() {
		x, y := a.x.row(r), a.y.row(r)
		at := 0
		a.each(func(corner int) {
			for c := range a.Channels {
				sum := float32(0)
				for i := range a.Kernel {
					for j := range a.Kernel {
						sum += x[corner+(i*a.Width+j)*a.Channels+c]
					}
				}
				y[at] = sum * scale
				at++
			}
		})
	}
}

func (a *avgPool) Backward() {
	if a.x.Grad == nil {
		return
	}
	scale := 1 / float32(a.Kernel*a.Kernel)
	for r := range a.tape.Rows() {
		dx, dy := a.x.Grad[r*a.x.width:(r+1)*a.x.width], a.y.Grad[r*a.y.width:(r+1)*a.y.width]
		at := 0
		a.each(func(corner int) {
			for c := range a.Channels {
				g := dy[at] * scale
				at++
				for i := range a.Kernel {
					for j := range a.Kernel {
						dx[corner+(i*a.Width+j)*a.Channels+c] += g
					}
				}
			}
		})
	}
}

// flatten turns height × width × channels into channels × height × width, or back.
type flatten struct {
	tape             *Tape
	x, y             *Tensor
	channels, places int
}

// Flatten records a picture's values in torch's order, channels first.
func Flatten(t *Tape, x *Tensor, channels int) *Tensor {
	return reorder(t, x, channels, x.Width()/channels)
}

// Unflatten records the values of a row in torch's order as a picture.
func Unflatten(t *Tape, x *Tensor, channels int) *Tensor {
	return reorder(t, x, x.Width()/channels, channels)
}

// reorder transposes rows of places × channels.
func reorder(t *Tape, x *Tensor, channels, places int) *Tensor {
	domain.Assert(x.Width() == channels*places, "a picture has as many values as its row")
	f := &flatten{tape: t, x: x, y: t.Activation(x.Width(), x.Grad != nil), channels: channels, places: places}
	t.Record(f)
	return f.y
}

func (f *flatten) Forward() {
	for r := range f.tape.Rows() {
		x, y := f.x.row(r), f.y.row(r)
		for p := range f.places {
			for c, v := range x[p*f.channels : (p+1)*f.channels] {
				y[c*f.places+p] = v
			}
		}
	}
}

func (f *flatten) Backward() {
	if f.x.Grad == nil {
		return
	}
	w := f.x.width
	for r := range f.tape.Rows() {
		dx, dy := f.x.Grad[r*w:(r+1)*w], f.y.Grad[r*w:(r+1)*w]
		for p := range f.places {
			for c := range f.channels {
				dx[p*f.channels+c] += dy[c*f.places+p]
			}
		}
	}
}
