package vote

import (
	"fmt"
	"math"

	"tensorturn/domain"
)

// Regression is the vote of members that predict numbers: the mean, and how far they spread around it.
type Regression struct {
	Rows         int       `json:"rows" msgpack:"rows"`
	MSE          []float64 `json:"mse" msgpack:"mse"`                   // each member's mean squared error
	MeanMSE      float64   `json:"mean_mse" msgpack:"mean_mse"`         // mean of the members'
	VoteMSE      float64   `json:"vote_mse" msgpack:"vote_mse"`         // the vote's
	Disagreement float64   `json:"disagreement" msgpack:"disagreement"` // mean squared distance of a member from the vote
	// MeanMSE − Disagreement = VoteMSE, exactly but for rounding (Krogh and Vedelsby 1995): the vote is never worse than
	// the mean member, and better by what they disagree.
}

// Average is the vote on one row: the members' mean and the standard deviation between them (dividing by their number;
// 0 for one). No member is an error.
func Average(predictions []float64) (mean, spread float64, err error) {
	if len(predictions) == 0 {
		return 0, 0, domain.Unavailable("vote", "no member answered", "try again", nil)
	}
	for m, v := range predictions {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, 0, &MemberError{m, fmt.Sprintf("prediction %v", v)}
		}
		mean += v
	}
	n := float64(len(predictions))
	mean /= n
	square := 0.0
	for _, v := range predictions {
		d := v - mean
		square += float64(d * d)
	}
	return mean, math.Sqrt(square / n), nil
}

// Regress measures members and vote on rows no member saw. members[m] and targets have one number for each row.
func Regress(members [][]float64, targets []float64) (Regression, error) {
	const op = "vote"
	if len(members) == 0 || len(members) > MaxMembers || len(targets) == 0 {
		return Regression{}, domain.Invalid(op, fmt.Sprintf("%d members and %d rows", len(members), len(targets)), fmt.Sprintf("give 1 to %d members and some rows", MaxMembers))
	}
	for m := range members {
		if len(members[m]) != len(targets) {
			return Regression{}, &MemberError{m, fmt.Sprintf("%d predictions for %d rows", len(members[m]), len(targets))}
		}
	}
	n, k := float64(len(targets)), float64(len(members))
	r := Regression{Rows: len(targets), MSE: make([]float64, len(members))}
	row := make([]float64, len(members))
	for i, target := range targets {
		if math.IsNaN(target) || math.IsInf(target, 0) {
			return Regression{}, domain.Integrity(op, fmt.Sprintf("row %d: the target is %v", i, target), "")
		}
		for m := range members {
			row[m] = members[m][i]
		}
		mean, spread, err := Average(row)
		if err != nil {
			return Regression{}, fmt.Errorf("row %d: %w", i, err)
		}
		for m, v := range row {
			d := v - target
			r.MSE[m] += float64(d*d) / n
		}
		d := mean - target
		r.VoteMSE += float64(d*d) / n
		r.Disagreement += float64(spread*spread) / n
	}
	for _, e := range r.MSE {
		r.MeanMSE += e / k
	}
	return r, nil
}
