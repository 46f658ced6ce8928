package builtin

import (
	"context"
	"fmt"
	"math"
	"slices"

	"tensorturn/agent/trainer"
	"tensorturn/domain"
)

// Evaluate implements trainer.Trainer: accuracy and mean cross-entropy on the held-out part, in its order, or of a regression
// mean squared error, R² and mean absolute error. progress may be nil. Ties go to the lower class.
func (t *Trainer) Evaluate(ctx context.Context, progress func(trainer.Progress)) (trainer.Metrics, error) {
	return t.evaluate(ctx, progress, func([]float32) {})
}

// evaluate also gives each batch's outputs to see, which must copy what it keeps.
func (t *Trainer) evaluate(ctx context.Context, progress func(trainer.Progress), see func([]float32)) (trainer.Metrics, error) {
	const op = "evaluate"
	if t.facts.Heldout == 0 {
		return trainer.Metrics{}, domain.Invalid(op, "no samples are held out", "set data.holdout above 0, or give more samples of each class")
	}
	total, right := 0.0, 0
	var numbers misses
	for from := 0; from < t.facts.Heldout; from += t.measured {
		if err := ctx.Err(); err != nil {
			return trainer.Metrics{}, err
		}
		n := min(t.measured, t.facts.Heldout-from)
		if err := t.readHeldout(from, n); err != nil {
			return trainer.Metrics{}, fmt.Errorf("%s: %w", op, err)
		}
		t.model.tape.Forward()
		loss := t.model.end.loss() * t.scale
		total += loss
		if s := t.model.end.squared; s != nil {
			numbers.add(s.Targets(), s.Predictions())
		} else {
			right += t.model.end.right(len(t.facts.Classes))
		}
		see(t.model.end.outputs())
		if progress != nil {
			progress(trainer.Progress{Samples: n, Loss: loss / float64(n)})
		}
	}
	if math.IsNaN(total) || math.IsInf(total, 0) {
		return trainer.Metrics{}, domain.Invalid(op, fmt.Sprintf("the loss is %v", total), "use weights of an earlier round")
	}
	n := t.facts.Heldout
	m := trainer.Metrics{Samples: n, Loss: total / float64(n)}
	if t.facts.Regression() {
		m.R2, m.MAE = numbers.r2(), numbers.mae(t.facts.TargetStd)
		return m, nil
	}
	m.Accuracy = float64(right) / float64(n*t.facts.Targets())
	return m, nil
}

// misses sums up what a regression misses, in standardised units.
type misses struct{ n, missed, absolute, sum, squares float64 }

func (e *misses) add(truth, said []float32) {
	for i, y := range truth {
		d := float64(said[i]) - float64(y)
		e.n++
		e.missed += float64(d * d)
		e.absolute += math.Abs(d)
		e.sum += float64(y)
		e.squares += float64(float64(y) * float64(y))
	}
}

// r2 is 1 − Σ(y − ŷ)² / Σ(y − mean)²; nil where all truths are equal.
func (e *misses) r2() *float64 {
	around := e.squares - float64(e.sum*e.sum)/e.n
	if !(around > 1e-12*e.squares) {
		return nil
	}
	r := 1 - e.missed/around
	return &r
}

func (e *misses) mae(scale float64) *float64 {
	m := e.absolute / e.n * scale
	return &m
}

// Predict implements trainer.Trainer. features are raw, as they stand in the table [rows, features]; they are
// standardised here with the data set's statistics. A regression gives one number a row, as the table has them; a model
// of text the probabilities of the byte behind the context.
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
	out := make([]float32, 0, len(features)/width*max(1, len(t.facts.Classes)))
	for len(features) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := min(t.measured, len(features)/width)
		x := t.input(n).Data
		t.facts.Standardise(features[:n*width], x)
		if i := slices.IndexFunc(x, func(v float32) bool { return !finite(v) }); i >= 0 {
			return nil, domain.Invalid(op, fmt.Sprintf("feature %q is too far from the training data to be standardised", t.facts.Columns[i%width]), "check the value")
		}
		features = features[n*width:]
		t.model.tape.Forward()
		out = t.appendAnswers(out)
	}
	return out, nil
}

// appendAnswers appends what the network says of the present batch, as Predict gives it.
func (t *Trainer) appendAnswers(out []float32) []float32 {
	said := t.model.end.outputs()
	if t.facts.Regression() {
		for _, y := range said {
			out = append(out, float32(float64(float64(y)*t.facts.TargetStd)+t.facts.TargetMean))
		}
		return out
	}
	row, last := len(t.facts.Classes)*t.facts.Targets(), len(t.facts.Classes)
	for at := 0; at < len(said); at += row {
		out = append(out, said[at+row-last:at+row]...) // of the last place
	}
	return out
}
