package builtin

import (
	"slices"

	"tensorturn/agent/trainer/builtin/tape"
)

// end is where a network meets the truth: classes, or numbers.
type end struct {
	classes *tape.CrossEntropy
	squared *tape.SquaredError
}

// loss sums the present batch's losses, after Forward.
func (e end) loss() float64 {
	if e.squared != nil {
		return e.squared.Loss()
	}
	return e.classes.Loss()
}

// outputs is what the network says of the present batch, rows × width.
func (e end) outputs() []float32 {
	if e.squared != nil {
		return e.squared.Predictions()
	}
	return e.classes.Probabilities()
}

// right counts the labels of the present batch that are the likeliest of width classes; ties go to the lower class.
func (e end) right(width int) int {
	probs, count := e.classes.Probabilities(), 0
	for i, label := range e.classes.Labels() {
		row := probs[i*width : (i+1)*width]
		if slices.Index(row, slices.Max(row)) == label {
			count++
		}
	}
	return count
}

// read fills the present batch's input and truth with training rows.
func (t *Trainer) read(batch []int) error {
	x := t.input(len(batch))
	if s := t.model.end.squared; s != nil {
		return t.set.ValueRows(batch, x.Data, s.Targets())
	}
	return t.set.Rows(batch, x.Data, t.model.end.classes.Labels())
}

// readHeldout fills them with n held-out rows from number from.
func (t *Trainer) readHeldout(from, n int) error {
	x := t.input(n)
	if s := t.model.end.squared; s != nil {
		return t.set.HeldoutValues(from, n, x.Data, s.Targets())
	}
	return t.set.Heldout(from, n, x.Data, t.model.end.classes.Labels())
}
