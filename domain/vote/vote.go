package vote

import "tensorturn/domain"

// Compute fits the rule and one temperature on the fitting part of the rows and measures members and vote on the test
// part. An empty rule is Mean. The result is a function of the input, bit for bit. A member whose outputs cannot be used
// is a *MemberError; the caller may try again without it.
func Compute(in Input, rule Rule) (Result, error) {
	if rule == "" {
		rule = Mean
	}
	if err := in.check(); err != nil {
		return Result{}, err
	}
	if err := CheckRule(rule); err != nil {
		return Result{}, err
	}
	p := deal(in.Labels, in.Classes)
	picks := in.picks()
	c, fallback := choose(in, rule, picks, p)
	r := Result{Asked: rule, Rule: c.Rule, Fallback: fallback, Weights: c.Weights,
		Rows: len(in.Labels), FitRows: len(p.fit), TestRows: len(p.test), Members: make([]Score, len(in.Members))}
	for m := range in.Members {
		r.Members[m] = in.alone(in.Members[m], p)
	}
	if in.Single != nil {
		s := in.alone(in.Single, p)
		r.Single = &s
	}
	r.Mean = meanScore(r.Members)
	f := in.forecast(c)
	r.Temperature = temperature(f, p.fit, in.Labels)
	out := make([]float64, in.Classes)
	class := func(i int) int { return c.combine(func(m int) []float32 { return in.row(m, i) }, out) }
	r.Vote = score(f, class, p.test, in.Labels, r.Temperature)
	r.Best = best(in, picks, p)
	r.Pairs, r.Disagreement = pairs(picks, p.test)
	return r, nil
}

// CheckRule refuses a rule that is not one.
func CheckRule(rule Rule) error {
	for _, known := range Rules() {
		if rule == known {
			return nil
		}
	}
	return domain.Invalid("vote", "unknown rule "+string(rule), "mean, majority, log_odds, stacking, greedy or auto")
}

// choose settles rule and weights.
func choose(in Input, rule Rule, picks [][]int32, p parts) (c Combiner, fallback string) {
	equal := Combiner{Rule: Mean, Weights: equalWeights(len(in.Members))}
	if rule == Auto {
		rule = Stacking
		if len(in.Members) > GreedyAbove {
			rule = Greedy
		}
	}
	switch {
	case rule == Mean:
		return equal, ""
	case rule == Majority:
		equal.Rule = Majority
		return equal, ""
	case len(in.Members) == 1:
		return equal, "one member has nobody to be weighed against"
	case len(p.fit) == 0:
		return equal, "too few rows are held out to fit weights: equal weights"
	case rule == LogOdds:
		return Combiner{Rule: LogOdds, Weights: logOdds(picks, in.Classes, p.fit, in.Labels)}, ""
	case rule == Greedy:
		return settle(in, Combiner{Rule: Greedy, Weights: greedy(in, p.weigh)}, p)
	}
	return settle(in, Combiner{Rule: Stacking, Weights: stack(in, p.weigh)}, p)
}

// best is the member with most right rows of the fitting part (of the test part when nothing is fitted); ties go to the
// lower log loss, then to the lower member.
func best(in Input, picks [][]int32, p parts) (member int) {
	rows := p.fit
	if len(rows) == 0 {
		rows = p.test
	}
	most, least := -1, 0.0
	for m := range in.Members {
		right, loss := 0, 0.0
		for _, i := range rows {
			if picks[m][i] == in.Labels[i] {
				right++
			}
			loss -= logOf(trueProbability(in, m, i))
		}
		if right > most || right == most && loss < least {
			member, most, least = m, right, loss
		}
	}
	return member
}

// alone scores one model by itself.
func (in Input) alone(model []float32, p parts) Score {
	one := Input{Classes: in.Classes, Labels: in.Labels, Members: [][]float32{model}}
	f := one.forecast(Combiner{Rule: Mean, Weights: []float64{1}})
	class := func(i int) int { return argmax(one.row(0, i)) }
	return score(f, class, p.test, in.Labels, temperature(f, p.fit, in.Labels))
}

// row is what member m gives row i.
func (in Input) row(m, i int) []float32 {
	return in.Members[m][i*in.Classes : (i+1)*in.Classes]
}

// picks are the members' classes on all rows.
func (in Input) picks() [][]int32 {
	picks := make([][]int32, len(in.Members))
	for m := range picks {
		picks[m] = make([]int32, len(in.Labels))
		for i := range in.Labels {
			picks[m][i] = int32(argmax(in.row(m, i)))
		}
	}
	return picks
}

// forecast combines all rows, before temperature.
func (in Input) forecast(c Combiner) forecast {
	f := forecast{classes: in.Classes, p: make([]float64, len(in.Labels)*in.Classes)}
	for i := range in.Labels {
		c.combine(func(m int) []float32 { return in.row(m, i) }, f.row(i))
	}
	return f
}
