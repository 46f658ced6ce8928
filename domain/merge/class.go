package merge

import (
	"fmt"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/safetensors"
)

// Class says by which rule a tensor of the weights is merged (design section 5). A rule that is not in force refuses
// the tensor by name: nothing is averaged by accident.
type Class int

// The classes.
const (
	Trainable  Class = iota // float32 weights: delta, mean and outer step
	Statistic               // running means and variances of normalisation: values, their mean, no outer step
	OtherFloat              // bf16, fp16 and float64
	Whole                   // integers: counters, position ids, tables
	Flag                    // booleans: masks
)

// rules says what holds for each class; an empty refusal means that the class is merged.
var rules = [...]struct{ refusal string }{
	Trainable:  {},
	Statistic:  {},
	OtherFloat: {"only F32 weights are merged so far; store it as F32"},
	Whole:      {"integer tensors are not merged so far; leave it out of the saved weights"},
	Flag:       {"boolean tensors are not merged so far; leave it out of the saved weights"},
}

// Last parts of the names that frameworks give to the statistics of batch and instance normalisation. They are known by
// name: a safetensors file has no other word for them.
const (
	runningMean = "running_mean"
	runningVar  = "running_var"
)

// ClassOf gives the class of a tensor of the weights.
func ClassOf(t safetensors.Tensor) Class {
	switch t.DType {
	case safetensors.F32:
		if last := t.Name[strings.LastIndexByte(t.Name, '.')+1:]; last == runningMean || last == runningVar {
			return Statistic
		}
		return Trainable
	case safetensors.F64, safetensors.F16, safetensors.BF16:
		return OtherFloat
	case safetensors.Bool:
		return Flag
	}
	return Whole
}

// CheckWeights reports whether weights of this layout can be merged: canonical order, and a class with a rule for each
// tensor. Errors are domain.KindInvalid and name the tensor.
func CheckWeights(ts []safetensors.Tensor) error {
	if !safetensors.Canonical(ts) {
		return domain.Invalid("check weights", "the tensors are not in ascending order of their names", "")
	}
	for _, t := range ts {
		if r := rules[ClassOf(t)]; r.refusal != "" {
			return domain.Invalid("check weights", fmt.Sprintf("tensor %v cannot be merged", t), r.refusal)
		}
	}
	return nil
}
