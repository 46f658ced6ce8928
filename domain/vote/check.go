package vote

import (
	"fmt"

	"tensorturn/domain"
)

// sumSlack is how far a row's probabilities may sum from 1: a softmax in bf16 over many classes is off by a percent.
const sumSlack = 0.02

// SingleMember stands for Input.Single in a MemberError.
const SingleMember = -1

// MemberError says that one member's outputs cannot be used; the others may vote without it.
type MemberError struct {
	Member int    // index in Input.Members, or SingleMember
	Why    string // "row 3: probability of class 1 is not a number"
}

// Error names the member by its place.
func (e *MemberError) Error() string { return fmt.Sprintf("outputs of member %d: %s", e.Member, e.Why) }

// check refuses what cannot be voted on. A fault of one member is a *MemberError.
func (in Input) check() error {
	const op = "vote"
	switch n := len(in.Members); {
	case n == 0:
		return domain.Invalid(op, "there are no members", "train at least one")
	case n > MaxMembers:
		return domain.Invalid(op, fmt.Sprintf("%d members are more than %d", n, MaxMembers), "train fewer")
	case in.Classes < 1:
		return domain.Invalid(op, fmt.Sprintf("%d classes", in.Classes), "use Regress for members that predict numbers")
	case len(in.Labels) == 0:
		return domain.Invalid(op, "no rows are held out", "set data.holdout above 0")
	}
	if err := checkLabels(op, in.Labels, len(in.Labels), in.Classes); err != nil {
		return err
	}
	for m, p := range in.Members {
		if err := checkMember(m, in.Classes, len(in.Labels), p); err != nil {
			return err
		}
	}
	if in.Single != nil {
		return checkMember(SingleMember, in.Classes, len(in.Labels), in.Single)
	}
	return nil
}

// checkLabels holds labels to be classes of as many rows.
func checkLabels(op string, labels []int32, rows, classes int) error {
	if len(labels) != rows {
		return domain.Integrity(op, fmt.Sprintf("%d labels for %d rows", len(labels), rows), "")
	}
	for i, l := range labels {
		if l < 0 || int(l) >= classes {
			return domain.Integrity(op, fmt.Sprintf("row %d has class %d of %d", i, l, classes), "")
		}
	}
	return nil
}

// checkMember holds one member's rows to be probabilities.
func checkMember(m, classes, rows int, p []float32) error {
	if len(p) != rows*classes {
		return &MemberError{m, fmt.Sprintf("%d values for %d rows of %d classes", len(p), rows, classes)}
	}
	for row := range rows {
		sum := 0.0
		for c, v := range p[row*classes : (row+1)*classes] {
			if !(v >= 0 && v <= 1+sumSlack) { // NaN fails both
				return &MemberError{m, fmt.Sprintf("row %d: %v is no probability of class %d", row, v, c)}
			}
			sum += float64(v)
		}
		if sum < 1-sumSlack || sum > 1+sumSlack {
			return &MemberError{m, fmt.Sprintf("row %d: probabilities sum to %.6g", row, sum)}
		}
	}
	return nil
}
