package builtin

import (
	"fmt"
	"math"
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
	loss   *tape.CrossEntropy
	params *tape.Params
	layout []safetensors.Tensor
	init   []initial // one a tensor of layout
}

// initial says how a tensor begins: uniform in ±bound, drawn from a stream of its own; bound 0 is zeros.
type initial struct {
	bound  float64
	stream uint64
}

// parameter is a tensor before the canonical order is known.
type parameter struct {
	safetensors.Tensor
	initial
}

// newModel builds the network that a resolved spec describes, for batches of at most capacity rows.
func newModel(spec run.Model, facts dataset.Facts, capacity int) (*model, error) {
	if spec.Kind != run.ModelMLP {
		return nil, domain.Invalid(opOpen, fmt.Sprintf("model.kind is %q", domain.Clip(spec.Kind, 40)), `set it to "mlp"`)
	}
	widths := slices.Concat([]int{facts.Features()}, spec.Hidden, []int{len(facts.Classes)})
	if err := checkSize(widths, capacity); err != nil {
		return nil, err
	}
	m := &model{tape: tape.New(capacity)}
	tensors := m.allocate(mlpParameters(widths))
	m.input = m.tape.Activation(widths[0], false)
	x := m.input
	for i := range len(widths) - 1 {
		if i > 0 {
			x = tape.ReLU(m.tape, x)
		}
		x = tape.Linear(m.tape, x, tensors[weightName(i)], tensors[biasName(i)])
	}
	m.loss = tape.NewCrossEntropy(m.tape, x)
	return m, nil
}

// Names are those of torch.nn.Sequential(Linear, ReLU, Linear, ...), so that exported weights load into it.
func weightName(layer int) string { return fmt.Sprintf("%d.weight", 2*layer) }
func biasName(layer int) string   { return fmt.Sprintf("%d.bias", 2*layer) }

// mlpParameters lists weights and biases. Weights begin by He's rule with a uniform draw (He et al., "Delving deep into
// rectifiers", 2015, eq. 10): variance 2/in before a ReLU, 1/in before the softmax. Uniform, because normal draws need
// logarithms whose last bits differ between platforms; a square root is exact everywhere.
func mlpParameters(widths []int) []parameter {
	var list []parameter
	for i := range len(widths) - 1 {
		in, out := widths[i], widths[i+1]
		gain := 2.0
		if i == len(widths)-2 {
			gain = 1
		}
		list = append(list,
			parameter{safetensors.Tensor{Name: weightName(i), DType: safetensors.F32, Shape: []int64{int64(out), int64(in)}},
				initial{bound: math.Sqrt(3 * gain / float64(in)), stream: uint64(i)}},
			parameter{safetensors.Tensor{Name: biasName(i), DType: safetensors.F32, Shape: []int64{int64(out)}}, initial{}})
	}
	return list
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
// batch two values with gradient a unit.
func checkSize(widths []int, capacity int) error {
	params, units := 0.0, 0.0
	for i, w := range widths {
		if w < 1 {
			return domain.Invalid(opOpen, fmt.Sprintf("layer %d has width %d", i, w), "give every layer a positive width")
		}
		units += float64(w)
		if i > 0 {
			params += float64(w) * float64(widths[i-1]+1)
		}
	}
	if need := 16*params + 16*units*float64(capacity); need > MaxBytes {
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
		if m.init[i].bound == 0 {
			clear(values)
			continue
		}
		source := permute.NewSource(seed, initTag, m.init[i].stream)
		for j := range values {
			values[j] = float32(m.init[i].bound * (2*source.Float64() - 1))
		}
	}
}
