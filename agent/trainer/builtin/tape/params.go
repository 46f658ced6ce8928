package tape

import "tensorturn/domain"

// Params is the parameters of a model in one piece of memory, in the order of their making, so that optimizers, norms
// and files are plain loops over one slice in one order.
type Params struct {
	Data, Grad []float32
	tensors    []*Tensor
	at         int
}

// NewParams makes room for n values.
func NewParams(n int) *Params {
	return &Params{Data: aligned(n), Grad: aligned(n)}
}

// Take cuts the next n values off as a tensor.
func (p *Params) Take(n int) *Tensor {
	domain.Assert(n > 0 && p.at+n <= len(p.Data), "parameters fit the room made for them")
	from, to := p.at, p.at+n
	p.at = to
	t := &Tensor{Data: p.Data[from:to:to], Grad: p.Grad[from:to:to], width: n}
	p.tensors = append(p.tensors, t)
	return t
}

// ZeroGrad clears all gradients.
func (p *Params) ZeroGrad() { clear(p.Grad) }
