package builtin

import (
	"fmt"
	"math"

	"tensorturn/agent/trainer/builtin/tape"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

// layer is one element of a network that is a chain. What it computes is the tape's; here stand its size and its names.
type layer interface {
	// parameters lists its tensors, named from their short names by name.
	parameters(name func(string) string) []parameter
	// record puts its operations on the tape, behind x; tensors are found by their short names.
	record(m *model, x *tape.Tensor, tensor func(string) *tape.Tensor) *tape.Tensor
	// units is the number of values with gradient that it makes of one row.
	units() int
}

// chain names its layers' tensors like torch.nn.Sequential: "0.weight", "0.bias", "2.weight", ..., so that exported weights
// load into it.
type chain []layer

func (c chain) name(at int) func(string) string {
	return func(short string) string { return fmt.Sprintf("%d.%s", at, short) }
}

// parameters lists all tensors. Those that begin by chance get a stream each, in this order.
func (c chain) parameters() []parameter {
	var list []parameter
	stream := uint64(0)
	for at, l := range c {
		for _, p := range l.parameters(c.name(at)) {
			if p.bound != 0 && !p.ones {
				p.stream = stream
				stream++
			}
			list = append(list, p)
		}
	}
	return list
}

// record puts the whole chain on the tape.
func (c chain) record(m *model, x *tape.Tensor, tensors map[string]*tape.Tensor) *tape.Tensor {
	for at, l := range c {
		name := c.name(at)
		x = l.record(m, x, func(short string) *tape.Tensor { return tensors[name(short)] })
	}
	return x
}

// f32 is a tensor of the file; bound 0 is zeros.
func f32(name string, bound float64, shape ...int) parameter {
	p := parameter{Tensor: safetensors.Tensor{Name: name, DType: safetensors.F32}, initial: initial{bound: bound}}
	for _, n := range shape {
		p.Shape = append(p.Shape, int64(n))
	}
	return p
}

// ones is a tensor that begins as ones.
func ones(name string, shape ...int) parameter {
	p := f32(name, 0, shape...)
	p.ones = true
	return p
}

// linear is y = x·Wᵀ + b. Weights begin by He's rule with a uniform draw (He et al., "Delving deep into rectifiers", 2015,
// eq. 10): variance gain/in, with gain 2 before a ReLU and 1 elsewhere. Uniform, because normal draws need logarithms whose
// last bits differ between platforms; a square root is exact everywhere.
type linear struct {
	in, out int
	gain    float64
	places  int // of a row that it is applied to, 0 is 1
}

func (l linear) parameters(name func(string) string) []parameter {
	return []parameter{f32(name("weight"), math.Sqrt(3*l.gain/float64(l.in)), l.out, l.in), f32(name("bias"), 0, l.out)}
}

func (l linear) record(m *model, x *tape.Tensor, tensor func(string) *tape.Tensor) *tape.Tensor {
	return tape.Linear(m.tape, x, tensor("weight"), tensor("bias"))
}

func (l linear) units() int { return l.out * max(l.places, 1) }

// relu is y = max(x, 0) of so many values.
type relu int

func (relu) parameters(func(string) string) []parameter { return nil }
func (r relu) units() int                               { return int(r) }
func (relu) record(m *model, x *tape.Tensor, _ func(string) *tape.Tensor) *tape.Tensor {
	return tape.ReLU(m.tape, x)
}

// embeddingSpread is the bound of an embedding's first values. With the usual variance of 1 a small model of Go sources had
// 0.1 nats more after the same 380,000 bytes than with 0.05 or 0.3.
const embeddingSpread = 0.2

// embedding looks up each of places symbols.
type embedding struct{ symbols, places, width int }

func (e embedding) parameters(name func(string) string) []parameter {
	return []parameter{f32(name("weight"), embeddingSpread, e.symbols, e.width)}
}

func (e embedding) record(m *model, x *tape.Tensor, tensor func(string) *tape.Tensor) *tape.Tensor {
	return tape.Embedding(m.tape, x, tensor("weight"), e.symbols)
}

func (e embedding) units() int { return e.places * e.width }

// flatten stands where torch.nn.Flatten stands: it puts the channels of a picture first, as torch has them.
type flatten struct{ run.Picture }

func (flatten) parameters(func(string) string) []parameter { return nil }

func (f flatten) units() int { return f.Size() }

func (f flatten) record(m *model, x *tape.Tensor, _ func(string) *tape.Tensor) *tape.Tensor {
	if f.Channels <= 1 || f.Flat() {
		return x
	}
	return tape.Flatten(m.tape, x, f.Channels)
}
