package builtin

import (
	"context"
	"fmt"
	"math"
	"slices"

	"tensorturn/agent/trainer"
	"tensorturn/domain"
)

// Evaluate implements trainer.Trainer: accuracy and mean cross-entropy on the held-out part, in its order. progress may
// be nil. Ties go to the lower class.
func (t *Trainer) Evaluate(ctx context.Context, progress func(trainer.Progress)) (trainer.Metrics, error) {
	return t.evaluate(ctx, progress, func([]float32) {})
}

// evaluate also gives each batch's probabilities to see, which must copy what it keeps.
func (t *Trainer) evaluate(ctx context.Context, progress func(trainer.Progress), see func([]float32)) (trainer.Metrics, error) {
	const op = "evaluate"
	if t.facts.Heldout == 0 {
		return trainer.Metrics{}, domain.Invalid(op, "no samples are held out", "set data.holdout above 0, or give more samples of each class")
	}
	total, right := 0.0, 0
	for from := 0; from < t.facts.Heldout; from += evaluationRows {
		if err := ctx.Err(); err != nil {
			return trainer.Metrics{}, err
		}
		n := min(evaluationRows, t.facts.Heldout-from)
		x := t.input(n)
		if err := t.set.Heldout(from, n, x.Data, t.model.loss.Labels()); err != nil {
			return trainer.Metrics{}, fmt.Errorf("%s: %w", op, err)
		}
		t.model.tape.Forward()
		loss := t.model.loss.Loss()
		total += loss
		right += t.right()
		see(t.model.loss.Probabilities()[:n*len(t.facts.Classes)])
		if progress != nil {
			progress(trainer.Progress{Samples: n, Loss: loss / float64(n)})
		}
	}
	if math.IsNaN(total) || math.IsInf(total, 0) {
		return trainer.Metrics{}, domain.Invalid(op, fmt.Sprintf("the loss is %v", total), "use weights of an earlier round")
	}
	n := t.facts.Heldout
	return trainer.Metrics{Samples: n, Accuracy: float64(right) / float64(n), Loss: total / float64(n)}, nil
}

// right counts the rows of the present batch whose likeliest class is the label.
func (t *Trainer) right() int {
	width := len(t.facts.Classes)
	probs, count := t.model.loss.Probabilities(), 0
	for i, label := range t.model.loss.Labels() {
		row := probs[i*width : (i+1)*width]
		if slices.Index(row, slices.Max(row)) == label {
			count++
		}
	}
	return count
}

// Predict implements trainer.Trainer. features are raw, as they stand in the table [rows, features]; they are
// standardised here with the data set's statistics.
func (t *Trainer) Predict(ctx context.Context, features []float32) ([]float32, error) {
	const op = "predict"
	width := t.facts.Features()
	if len(features) == 0 || len(features)%width != 0 {
		return nil, domain.Invalid(op, fmt.Sprintf("%d values are no whole rows of %d features", len(features), width), "give every feature of every row")
	}
	if i := slices.IndexFunc(features, func(v float32) bool { return !finite(v) }); i >= 0 {
		return nil, domain.Invalid(op, fmt.Sprintf("row %d, feature %q is not finite", i/width, t.facts.Columns[i%width]), "give finite numbers")
	}
	if err := t.checkBytes(op, features); err != nil {
		return nil, err
	}
	out := make([]float32, 0, len(features)/width*len(t.facts.Classes))
	for len(features) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := min(evaluationRows, len(features)/width)
		x := t.input(n).Data
		t.facts.Standardise(features[:n*width], x)
		if i := slices.IndexFunc(x, func(v float32) bool { return !finite(v) }); i >= 0 {
			return nil, domain.Invalid(op, fmt.Sprintf("feature %q is too far from the training data to be standardised", t.facts.Columns[i%width]), "check the value")
		}
		features = features[n*width:]
		t.model.tape.Forward()
		out = append(out, t.model.loss.Probabilities()...)
	}
	return out, nil
}
