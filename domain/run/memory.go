package run

import "tensorturn/domain"

// MaxTake is the most that a slot may say a step took, in bytes: more than any machine has.
const MaxTake = 1 << 46

// Memory is what one slot takes of a machine, in bytes; 0 is unknown.
type Memory struct {
	Host   uint64 `json:"host,omitempty" msgpack:"host,omitempty" doc:"bytes of the machine's memory"`
	Device uint64 `json:"device,omitempty" msgpack:"device,omitempty" doc:"bytes of the GPU's memory"`
}

// String says it for people.
func (m Memory) String() string {
	s := domain.FormatSize(m.Host) + " of memory"
	if m.Device > 0 {
		s += ", " + domain.FormatSize(m.Device) + " of the GPU's"
	}
	return s
}

// What the built-in trainer keeps of each parameter: weights, gradient, and two moments with adamw, float32 each.
const (
	bytesOfSGD   = 8
	bytesOfAdamW = 16
)

// byteValues is how many rows the embedding of a model over text has.
const byteValues = 256

// Parameters is how many float parameters a built-in model has, 0 where that is not known before its first weights are made.
func Parameters(s *Spec, d *Dataset) int64 {
	if s.Trainer != Builtin || s.Model.Kind != ModelMLP || d.Features == 0 {
		return 0
	}
	in, sum := int64(d.Features), int64(0)
	if d.Predicts > 0 { // text: each byte of the context is looked up in one embedding
		sum = byteValues * int64(s.Model.Embedding)
		in *= int64(s.Model.Embedding)
	}
	for _, w := range s.Model.Hidden {
		sum += (in + 1) * int64(w)
		in = int64(w)
	}
	return sum + (in+1)*int64(max(d.Classes, 1))
}

// LeastMemory is what a slot of a built-in model takes at least, in bytes; 0 where its parameters are not known. Activations, data
// and the copies that a delta is made from come on top.
func LeastMemory(s *Spec, d *Dataset) uint64 {
	each := int64(bytesOfSGD)
	if s.Optimizer.Kind == OptimizerAdamW {
		each = bytesOfAdamW
	}
	return uint64(each * Parameters(s, d))
}
