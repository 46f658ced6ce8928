package builtin

import (
	"fmt"
	"slices"
	"strings"

	"tensorturn/agent/trainer/builtin/tape"
	"tensorturn/domain"
	"tensorturn/domain/dataset"
	"tensorturn/domain/permute"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

// initTag sets the stream of initial weights apart from the run's other streams of the same seed.
const initTag = 0x1417

// model is a network on a tape, with its parameters in canonical order.
type model struct {
	tape   *tape.Tape
	input  *tape.Tensor
	end    end
	norms  []*tape.BatchNorm
	params *tape.Params
	layout []safetensors.Tensor
	init   []initial // one a tensor of layout
}

// initial says how a tensor begins: uniform in ±bound, drawn from a stream of its own; bound 0 is zeros.
type initial struct {
	bound  float64
	stream uint64
	ones   bool // ones instead
}

// parameter is a tensor before the canonical order is known.
type parameter struct {
	safetensors.Tensor
	initial
}

// newModel builds the network that a resolved spec describes, for batches of at most capacity rows.
func newModel(spec run.Model, facts dataset.Facts, capacity int) (*model, error) {
	net, err := chainOf(spec, facts)
	if err != nil {
		return nil, err
	}
	list := net.parameters()
	if err := checkSize(net, list, facts.Features(), capacity); err != nil {
		return nil, err
	}
	m := &model{tape: tape.New(capacity)}
	tensors := m.allocate(list)
	m.input = m.tape.Activation(facts.Features(), false)
	x := m.input
	if p := run.PictureOf(facts.Shape, facts.Features()); spec.Kind != run.ModelMLP && !p.Flat() && p.Channels > 1 {
		x = tape.Unflatten(m.tape, x, p.Channels)
	}
	y := net.record(m, x, tensors)
	if facts.Regression() {
		m.end.squared = tape.NewSquaredError(m.tape, y)
	} else {
		m.end.classes = tape.NewCrossEntropy(m.tape, y, len(facts.Classes))
	}
	return m, nil
}

// chainOf lists the layers. Their sizes are checked with the spec; a spec of another origin is refused here.
func chainOf(spec run.Model, facts dataset.Facts) (chain, error) {
	out := len(facts.Classes)
	if facts.Regression() {
		out = 1
	}
	if o := TextOptions(spec); facts.Predicts > 0 && (facts.Features() != o.Context || facts.Predicts != o.Predicts) {
		return nil, domain.Invalid(opOpen, fmt.Sprintf("the text is packed for a context of %d bytes that predicts %d, the model sees %d and predicts %d", facts.Features(), facts.Predicts, o.Context, o.Predicts),
			"submit the run again, so that its data is packed anew")
	}
	switch {
	case spec.Kind == run.ModelTransformer && facts.Predicts > 0:
		return transformer(spec, out)
	case spec.Kind == run.ModelMLP:
		return perceptron(spec, facts, out)
	case spec.Kind == run.ModelCNN, spec.Kind == run.ModelLayers:
		return written(spec, facts, out)
	}
	return nil, domain.Invalid(opOpen, fmt.Sprintf("model.kind is %q", domain.Clip(spec.Kind, 40)), `set it to "mlp", "cnn" or "layers", or for text to "mlp" or "transformer"`)
}

// perceptron is a multilayer perceptron over columns, or over the embedded bytes of a context (Bengio et al., "A neural
// probabilistic language model", 2003, without the direct connections).
func perceptron(spec run.Model, facts dataset.Facts, out int) (chain, error) {
	var net chain
	in := facts.Features()
	if facts.Predicts > 0 {
		net = append(net, embedding{dataset.Bytes, in, spec.Embedding}, flatten{})
		in *= spec.Embedding
	}
	for i, w := range spec.Hidden {
		if w < 1 {
			return nil, domain.Invalid(opOpen, fmt.Sprintf("hidden layer %d has width %d", i+1, w), "give every layer a positive width")
		}
		net = append(net, linear{in: in, out: w, gain: 2}, relu(w))
		in = w
	}
	return append(net, linear{in: in, out: out, gain: 1}), nil
}

// allocate makes the parameters in canonical order and returns them by name. The map is only looked up.
func (m *model) allocate(list []parameter) map[string]*tape.Tensor {
	slices.SortFunc(list, func(a, b parameter) int { return strings.Compare(a.Name, b.Name) })
	total := 0
	for _, p := range list {
		total += elements(p.Tensor)
	}
	m.params = tape.NewParams(total)
	byName := make(map[string]*tape.Tensor, len(list))
	for _, p := range list {
		byName[p.Name] = m.params.Take(elements(p.Tensor))
		m.layout = append(m.layout, p.Tensor)
		m.init = append(m.init, p.initial)
	}
	return byName
}

// elements counts a tensor's values; sizes are checked before any tensor is made.
func elements(t safetensors.Tensor) int {
	n := 1
	for _, d := range t.Shape {
		n *= int(d)
	}
	return n
}

// checkSize refuses a model that needs more than MaxBytes: weights, gradients and optimizer state, and for each row of a
// batch its input and two values with gradient a unit, and what a layer works in besides.
func checkSize(net chain, list []parameter, features, capacity int) error {
	params, units, besides := 0.0, float64(features), 0.0
	for _, p := range list {
		n := 1.0
		for _, d := range p.Shape {
			n *= float64(d)
		}
		params += n
	}
	for _, l := range net {
		units += float64(l.units())
		if c, ok := l.(conv); ok {
			besides += c.ConvBytes(c.out.Channels, capacity)
		}
	}
	if need := 16*params + 16*units*float64(capacity) + besides; need > MaxBytes {
		return domain.Invalid(opOpen, fmt.Sprintf("%.0f parameters and batches of %d rows need %.1f GiB, the built-in trainer takes %d GiB",
			params, capacity, need/(1<<30), MaxBytes>>30), "use narrower layers or a smaller batch")
	}
	return nil
}

// initialise sets the weights that the seed gives.
func (m *model) initialise(seed uint64) {
	at := 0
	for i, t := range m.layout {
		values := m.params.Data[at : at+elements(t)]
		at += len(values)
		switch {
		case m.init[i].ones:
			for j := range values {
				values[j] = 1
			}
			continue
		case m.init[i].bound == 0:
			clear(values)
			continue
		}
		source := permute.NewSource(seed, initTag, m.init[i].stream)
		for j := range values {
			values[j] = float32(m.init[i].bound * (2*source.Float64() - 1))
		}
	}
}
