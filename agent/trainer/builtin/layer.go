package builtin

import (
	"fmt"
	"math"

	"tensorturn/agent/trainer/builtin/tape"
	"tensorturn/domain/safetensors"
)

// layer is one element of a network that is a chain. What it computes is the tape's; here stand its size and its names.
type layer interface {
	// parameters lists its tensors, named from their short names by name.
	parameters(name func(string) string) []parameter
	// record puts its operations on the tape, behind x; tensors are found by their short names.
	record(t *tape.Tape, x *tape.Tensor, tensor func(string) *tape.Tensor) *tape.Tensor
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
			if p.bound != 0 {
				p.stream = stream
				stream++
			}
			list = append(list, p)
		}
	}
	return list
}

// record puts the whole chain on the tape.
func (c chain) record(t *tape.Tape, x *tape.Tensor, tensors map[string]*tape.Tensor) *tape.Tensor {
	for at, l := range c {
		name := c.name(at)
		x = l.record(t, x, func(short string) *tape.Tensor { return tensors[name(short)] })
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

// linear is y = x·Wᵀ + b. Weights begin by He's rule with a uniform draw (He et al., "Delving deep into rectifiers", 2015,
// eq. 10): variance gain/in, with gain 2 before a ReLU and 1 elsewhere. Uniform, because normal draws need logarithms whose
// last bits differ between platforms; a square root is exact everywhere.
type linear struct {
	in, out int
	gain    float64
}

func (l linear) parameters(name func(string) string) []parameter {
	return []parameter{f32(name("weight"), math.Sqrt(3*l.gain/float64(l.in)), l.out, l.in), f32(name("bias"), 0, l.out)}
}

func (l linear) record(t *tape.Tape, x *tape.Tensor, tensor func(string) *tape.Tensor) *tape.Tensor {
	return tape.Linear(t, x, tensor("weight"), tensor("bias"))
}

func (l linear) units() int { return l.out }

// relu is y = max(x, 0) of so many values.
type relu int

func (relu) parameters(func(string) string) []parameter { return nil }
func (r relu) units() int                               { return int(r) }
func (relu) record(t *tape.Tape, x *tape.Tensor, _ func(string) *tape.Tensor) *tape.Tensor {
	return tape.ReLU(t, x)
}

// embedding looks up each of places symbols; its values begin with the variance 1.
type embedding struct{ symbols, places, width int }

func (e embedding) parameters(name func(string) string) []parameter {
	return []parameter{f32(name("weight"), math.Sqrt(3), e.symbols, e.width)}
}

func (e embedding) record(t *tape.Tape, x *tape.Tensor, tensor func(string) *tape.Tensor) *tape.Tensor {
	return tape.Embedding(t, x, tensor("weight"), e.symbols)
}

func (e embedding) units() int { return e.places * e.width }

// flatten stands where torch.nn.Flatten stands; here rows are flat already.
type flatten struct{}

func (flatten) parameters(func(string) string) []parameter { return nil }
func (flatten) units() int                                 { return 0 }
func (flatten) record(_ *tape.Tape, x *tape.Tensor, _ func(string) *tape.Tensor) *tape.Tensor {
	return x
}
