package builtin

import (
	"fmt"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
)

// TextOptions says how the text of a resolved or filled model is to be packed: what one of its samples sees and predicts.
func TextOptions(m run.Model) dataset.TextOptions {
	o := dataset.TextOptions{Context: m.Context, Predicts: 1}
	if m.Kind == run.ModelTransformer {
		o.Predicts = m.Context
	}
	return o
}

// checkBytes refuses features that are no bytes.
func (t *Trainer) checkBytes(op string, features []float32) error {
	if t.facts.Predicts == 0 {
		return nil
	}
	if i := slices.IndexFunc(features, func(v float32) bool { return v != float32(uint8(max(0, min(v, 255)))) }); i >= 0 {
		return domain.Invalid(op, fmt.Sprintf("%v is not a byte", features[i]), "give whole numbers from 0 to 255, the bytes of a text")
	}
	return nil
}
