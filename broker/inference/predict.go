package inference

import (
	"context"
	"fmt"

	"tensorturn/domain"
)

var _ Backend = (*Engine)(nil)

// Describe implements Backend.
func (e *Engine) Describe(ctx context.Context, v *Version) (Facts, error) {
	var facts Facts
	var failed error
	found := false
	for _, m := range v.members() {
		l, err := e.acquire(ctx, v, m)
		if err != nil {
			failed = err
			continue
		}
		if f := l.unit.predictor.Facts(); !found {
			facts, found = f, true
		}
		e.release(l)
	}
	if !found {
		return Facts{}, failed
	}
	return facts, nil
}

// Check implements Backend: it loads every model of the version.
func (e *Engine) Check(ctx context.Context, v *Version) error {
	if err := Servable(v.Spec); err != nil {
		return err
	}
	for _, m := range v.members() {
		l, err := e.acquire(ctx, v, m)
		if err != nil {
			return err
		}
		e.release(l)
	}
	return nil
}

// Predict implements Backend. A member of an ensemble that cannot be loaded or fails leaves the vote, and the answer says how
// many took part.
func (e *Engine) Predict(ctx context.Context, v *Version, features []float32) (Answer, error) {
	if len(v.Members) > 0 {
		return e.vote(ctx, v, features)
	}
	l, err := e.acquire(ctx, v, Member{Weights: v.Weights, Layout: v.Layout})
	if err != nil {
		return Answer{}, err
	}
	defer e.release(l)
	facts := l.unit.predictor.Facts()
	rows, err := Rows(facts, features)
	if err != nil {
		return Answer{}, err
	}
	p, err := l.unit.predict(ctx, features, rows)
	if err != nil {
		return Answer{}, err
	}
	width := len(facts.Classes)
	if len(p) != rows*width {
		return Answer{}, &domain.Error{Kind: domain.KindInternal, Op: "predict", Why: fmt.Sprintf("the model gave %d values for %d rows of %d classes", len(p), rows, width)}
	}
	return Single(facts, p), nil
}

// Single is the answer of one model that gave probabilities p [rows, classes].
func Single(facts Facts, p []float32) Answer {
	width := len(facts.Classes)
	a := Answer{Facts: facts, Probabilities: p, Class: make([]int, len(p)/width)}
	for i := range a.Class {
		a.Class[i] = likeliest(p[i*width : (i+1)*width])
	}
	return a
}

// Rows counts whole rows of features.
func Rows(f Facts, features []float32) (int, error) {
	n := len(f.Columns)
	if n == 0 || len(features) == 0 || len(features)%n != 0 {
		return 0, domain.Invalid("predict", fmt.Sprintf("%d values are no whole rows of %d features", len(features), n), "give every feature of every row")
	}
	return len(features) / n, nil
}

// likeliest is the class with most probability; ties go to the lower one.
func likeliest(p []float32) int {
	best := 0
	for i, v := range p {
		if v > p[best] {
			best = i
		}
	}
	return best
}

// vote asks every member and combines what they say. Members are asked one after another: each is a few microseconds in
// this process, and a batch of other requests runs beside.
func (e *Engine) vote(ctx context.Context, v *Version, features []float32) (Answer, error) {
	answers := make([][]float32, len(v.Members))
	var facts Facts
	var failed error
	rows, used := 0, 0
	for i, m := range v.Members {
		p, f, err := e.ask(ctx, v, m, features)
		if domain.KindOf(err) == domain.KindInvalid || ctx.Err() != nil {
			return Answer{}, cmpErr(err, ctx.Err()) // the rows are wrong for every member, or nobody waits any more
		}
		if err != nil {
			failed = err
			continue
		}
		if used == 0 {
			facts, rows = f, len(features)/len(f.Columns)
		}
		if len(f.Classes) != len(facts.Classes) || len(p) != rows*len(facts.Classes) {
			failed = domain.Integrity("predict", fmt.Sprintf("member %d has other classes than the others", m.Number), "deploy the run again")
			continue
		}
		answers[i] = p
		used++
	}
	if used == 0 {
		return Answer{}, failed
	}
	return Combine(v, facts, answers, rows, used)
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// Member gives the probabilities [rows, classes] of one model of a version, for a caller that lets members vote elsewhere.
func (e *Engine) Member(ctx context.Context, v *Version, m Member, features []float32) ([]float32, error) {
	p, f, err := e.ask(ctx, v, m, features)
	if err == nil && len(p) != len(features)/len(f.Columns)*len(f.Classes) {
		return nil, &domain.Error{Kind: domain.KindInternal, Op: "predict", Why: fmt.Sprintf("the model gave %d values", len(p))}
	}
	return p, err
}

// ask asks one member.
func (e *Engine) ask(ctx context.Context, v *Version, m Member, features []float32) ([]float32, Facts, error) {
	l, err := e.acquire(ctx, v, m)
	if err != nil {
		return nil, Facts{}, err
	}
	defer e.release(l)
	facts := l.unit.predictor.Facts()
	rows, err := Rows(facts, features)
	if err != nil {
		return nil, facts, err
	}
	p, err := l.unit.predict(ctx, features, rows)
	return p, facts, err
}

// Combine votes row by row. answers holds the probabilities [rows, classes] of each of v.Members, nil for those that did not
// answer; used counts those that did.
func Combine(v *Version, facts Facts, answers [][]float32, rows, used int) (Answer, error) {
	width := len(facts.Classes)
	a := Answer{Facts: facts, Probabilities: make([]float32, rows*width), Class: make([]int, rows), Votes: make([]int, rows*width),
		Agreement: make([]float64, rows), Used: used}
	row, out := make([][]float32, len(answers)), make([]float64, width)
	for r := range rows {
		for m, p := range answers {
			if p == nil {
				continue
			}
			row[m] = p[r*width : (r+1)*width]
			a.Votes[r*width+likeliest(row[m])]++
		}
		said, err := v.Vote.Row(row, out)
		if err != nil {
			return Answer{}, err
		}
		a.Class[r], a.Agreement[r] = said.Class, said.Agreement
		for i, p := range out {
			a.Probabilities[r*width+i] = float32(p)
		}
	}
	return a, nil
}
