package builtin

import (
	"math"

	"tensorturn/agent/trainer/builtin/tape"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
)

// written is the network of model.layers, with a linear layer at its end.
func written(spec run.Model, facts dataset.Facts, out int) (chain, error) {
	in := run.PictureOf(facts.Shape, facts.Features())
	layers, shapes, err := spec.Shapes(in)
	if err != nil {
		return nil, err
	}
	var net chain
	for i, l := range layers {
		net = append(net, layersOf(l, in, shapes[i], gainBefore(layers[i+1:]))...)
		in = shapes[i]
	}
	if !in.Flat() {
		net = append(net, flatten{in})
	}
	return append(net, linear{in: in.Size(), out: out, gain: 1}), nil
}

// gainBefore is He's factor of a layer with these behind it: 2 where a ReLU is the next that is no normalisation or pool.
func gainBefore(rest []run.Layer) float64 {
	for _, l := range rest {
		switch l.Kind {
		case run.LayerReLU:
			return 2
		case run.LayerConv, run.LayerLinear:
			return 1
		}
	}
	return 1
}

func layersOf(l run.Layer, in, out run.Picture, gain float64) chain {
	switch l.Kind {
	case run.LayerConv:
		return chain{conv{window(in, l.Kernel, l.Stride, l.Kernel/2), out, gain}}
	case run.LayerMaxPool:
		return chain{pool{window(in, l.Kernel, l.Kernel, 0), out, tape.MaxPool}}
	case run.LayerAvgPool:
		return chain{pool{window(in, l.Kernel, l.Kernel, 0), out, tape.AvgPool}}
	case run.LayerLinear:
		if in.Flat() {
			return chain{linear{in: in.Size(), out: l.Width, gain: gain}}
		}
		return chain{flatten{in}, linear{in: in.Size(), out: l.Width, gain: gain}}
	case run.LayerNorm:
		return chain{layerNorm{in.Channels, in.Size()}}
	case run.LayerBatchNorm:
		return chain{batchNorm{in.Channels, in.Size()}}
	}
	return chain{relu(in.Size())}
}

func window(in run.Picture, kernel, stride, pad int) tape.Window {
	return tape.Window{Channels: in.Channels, Height: in.Height, Width: in.Width, Kernel: kernel, Stride: stride, Pad: pad}
}

// conv is a convolution; its weights begin like those of a linear layer over one window.
type conv struct {
	tape.Window
	out  run.Picture
	gain float64
}

func (c conv) parameters(name func(string) string) []parameter {
	fan := c.Channels * c.Kernel * c.Kernel
	return []parameter{f32(name("weight"), math.Sqrt(3*c.gain/float64(fan)), c.out.Channels, c.Channels, c.Kernel, c.Kernel), f32(name("bias"), 0, c.out.Channels)}
}

func (c conv) record(m *model, x *tape.Tensor, tensor func(string) *tape.Tensor) *tape.Tensor {
	return tape.Conv(m.tape, x, tensor("weight"), tensor("bias"), c.Window)
}

func (c conv) units() int { return c.out.Size() }

type pool struct {
	tape.Window
	out run.Picture
	op  func(*tape.Tape, *tape.Tensor, tape.Window) *tape.Tensor
}

func (pool) parameters(func(string) string) []parameter { return nil }
func (p pool) units() int                               { return p.out.Size() }
func (p pool) record(m *model, x *tape.Tensor, _ func(string) *tape.Tensor) *tape.Tensor {
	return p.op(m.tape, x, p.Window)
}

// layerNorm normalises the channels of each place, of a plain row all its values.
type layerNorm struct{ channels, size int }

func (l layerNorm) parameters(name func(string) string) []parameter {
	return []parameter{ones(name("weight"), l.channels), f32(name("bias"), 0, l.channels)}
}

func (l layerNorm) record(m *model, x *tape.Tensor, tensor func(string) *tape.Tensor) *tape.Tensor {
	return tape.LayerNorm(m.tape, x, tensor("weight"), tensor("bias"))
}

func (l layerNorm) units() int { return l.size }

// batchNorm normalises each channel over the batch. Its running statistics are tensors of the file that merges take the
// mean of (domain/merge, Statistic).
type batchNorm struct{ channels, size int }

func (b batchNorm) parameters(name func(string) string) []parameter {
	return []parameter{ones(name("weight"), b.channels), f32(name("bias"), 0, b.channels),
		f32(name("running_mean"), 0, b.channels), ones(name("running_var"), b.channels)}
}

func (b batchNorm) record(m *model, x *tape.Tensor, tensor func(string) *tape.Tensor) *tape.Tensor {
	n, y := tape.NewBatchNorm(m.tape, x, tensor("weight"), tensor("bias"), tensor("running_mean"), tensor("running_var"))
	m.norms = append(m.norms, n)
	return y
}

func (b batchNorm) units() int { return b.size }
