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
	a.table([]string{"MODEL", "WEIGHT", "ACCURACY", "NLL", "BRIER", "ECE", "T", "NLL AT T", "BRIER AT T", "ECE AT T"}, scoreRows(r.Vote))
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
			name += " (best)"
		}
		rows = append(rows, row(name, fmt.Sprintf("%.4f", v.Weights[i]), v.Result.Members[i]))
	}
	rows = append(rows, row("mean member", "", v.Mean), row("vote", "", v.Result.Vote))
	if v.Result.Single != nil {
		rows = append(rows, row("single model", "", *v.Result.Single))
	}
	return rows
}
