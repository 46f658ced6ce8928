package main

import (
	"fmt"

	"tensorturn/domain/vote"
	"tensorturn/projections/runs"
)

// scoreTable prints what the vote measured on the rows that nobody trained or fitted on: each model as it is, and at its own temperature.
func (a *app) scoreTable(r runs.Run) {
	if r.Vote == nil {
		return
	}
	a.print("")
	a.print("%s", measuredOn(&r.Vote.Result))
	a.table([]string{"MODEL", "WEIGHT", "ACCURACY", "NLL", "BRIER", "ECE", "T", "NLL AT T", "BRIER AT T", "ECE AT T"}, scoreRows(r.Vote))
}

// measuredOn says which rows the figures are of, and why those at a model's own temperature may be the worse ones.
func measuredOn(v *vote.Result) string {
	if v.FitRows == 0 {
		return fmt.Sprintf("on all %s used, too few to fit weights or temperatures on a part of them:", count(v.TestRows, "held-out row"))
	}
	return fmt.Sprintf("on %d of %s used; the other %d chose weights, temperatures (T) and the best member, so that a figure at T may be worse here:",
		v.TestRows, count(v.Rows, "held-out row"), v.FitRows)
}

// ruleText says by which rule the members vote, and why by this one.
func ruleText(v *vote.Result) string {
	switch {
	case v.Fallback != "":
		return fmt.Sprintf("%s (%s)", v.Rule, v.Fallback)
	case v.Asked != vote.Auto:
		return string(v.Rule)
	case v.Rule == vote.Greedy:
		return fmt.Sprintf("greedy (auto selects among more than %d members, and it was a gain on rows it was not fitted on)", vote.GreedyAbove)
	}
	return fmt.Sprintf("%s (auto stacks up to %d members, and it was a gain on rows it was not fitted on)", v.Rule, vote.GreedyAbove)
}

// bestText names the member that one would have taken alone. It is chosen on other rows than it is measured on, where it may be
// the worst.
func bestText(v *vote.Result, number int) string {
	text := fmt.Sprintf("%d: accuracy %.4f", number, v.Members[v.Best].Accuracy)
	if v.FitRows > 0 {
		text += fmt.Sprintf(" on these rows, best on the %d that chose", v.FitRows)
	}
	return text
}

// scoreRows lists members, their mean, the best one, the vote, and the single model.
func scoreRows(v *runs.Vote) [][]string {
	row := func(name, weight string, s vote.Score) []string {
		f := func(x float64) string { return fmt.Sprintf("%.4f", x) }
		return []string{name, weight, f(s.Accuracy), f(s.NLL), f(s.Brier), f(s.ECE), fmt.Sprintf("%.3f", s.Temperature), f(s.ScaledNLL), f(s.ScaledBrier), f(s.ScaledECE)}
	}
	rows := [][]string{}
	for i, in := range v.Members {
		name := "member " + itoa(in.Member)
		if i == v.Best {
			name += " (chosen)"
		}
		rows = append(rows, row(name, fmt.Sprintf("%.4f", v.Weights[i]), v.Result.Members[i]))
	}
	rows = append(rows, row("mean member", "", v.Mean), row("vote", "", v.Result.Vote))
	if v.Result.Single != nil {
		rows = append(rows, row("single model", "", *v.Result.Single))
	}
	return rows
}
