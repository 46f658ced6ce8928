package replay

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/ballot"
	"tensorturn/domain/blob"
	"tensorturn/domain/run"
)

// Vote is what a verification found of an ensemble.
type Vote struct {
	Members     int     `json:"members"`    // that voted
	Recomputed  bool    `json:"recomputed"` // rule, weights, temperature and every figure, bit for bit
	Rule        string  `json:"rule"`
	Temperature float64 `json:"temperature"`
	Accuracy    float64 `json:"accuracy"`
}

// ballotBox is a vote as the log tells it.
type ballotBox struct {
	fact   run.Voted
	ballot ballot.Ballot // who could vote when it was counted
	seq    uint64
}

// voteContradiction compares a vote with the members that are in.
func voteContradiction(s *run.State, d *run.Voted) string {
	if _, waits := s.NeedsVote(); !waits {
		return "nobody waits for a vote"
	}
	b := ballot.Of(s)
	switch {
	case !slices.Equal(d.Members, b.Voters):
		return "the vote was not counted over the members that are in"
	case d.Single != nil && (b.Single == nil || *d.Single != *b.Single):
		return "the vote was compared with a model that is not the run's"
	case len(d.Result.Weights) != len(d.Members) || len(d.Result.Members) != len(d.Members):
		return fmt.Sprintf("the vote has %d weights for %d members", len(d.Result.Weights), len(d.Members))
	case d.Result.Asked != s.Spec.Ensemble.Vote:
		return fmt.Sprintf("the vote is by %s, the run asks for %s", d.Result.Asked, s.Spec.Ensemble.Vote)
	}
	return ""
}

// verifyVote counts the vote again from the stored outputs and compares every bit: rule, weights, temperature, figures. It
// also reads the weights of every member through. Nil when nothing was voted.
func (l *Log) verifyVote(ctx context.Context, get blob.Get) (*Vote, error) {
	if l.state.Ensemble == nil {
		return nil, nil
	}
	for i := range l.state.Ensemble.Members {
		m := &l.state.Ensemble.Members[i]
		if m.Status != run.MemberIn {
			continue
		}
		if err := readThrough(ctx, fmt.Sprintf("weights of member %d", m.Number), m.Weights, get); err != nil {
			return nil, err
		}
	}
	if l.vote == nil {
		return nil, nil
	}
	f := l.vote.fact
	r := &Vote{Members: len(f.Members), Rule: string(f.Result.Rule), Temperature: f.Result.Temperature, Accuracy: f.Result.Vote.Accuracy}
	again, err := l.vote.ballot.Count(ctx, get, get)
	if faults := ballot.Faults(err); len(faults) > 0 {
		return r, &domain.Error{Kind: domain.KindIntegrity, Op: fmt.Sprintf("read outputs %s of member %d", faults[0].Input.Outputs, faults[0].Input.Member),
			Why: "they are damaged or gone", Next: fromBackup, Err: errors.Unwrap(faults[0])}
	}
	switch domain.KindOf(err) {
	case "":
	case domain.KindNotFound, domain.KindInvalid: // the log says that they could be read
		return r, &domain.Error{Kind: domain.KindIntegrity, Op: "recompute vote", Why: "what it is counted from cannot be read", Next: fromBackup, Err: err}
	default:
		return r, err
	}
	if l.checks.bits {
		if what := voteDifference(f, again); what != "" {
			return r, domain.Integrity("recompute vote", what, "the log or the program that counted is not what it says")
		}
	}
	r.Recomputed = true
	return r, nil
}

// voteDifference says in what the recorded vote differs from the one counted again, "" when in nothing.
func voteDifference(was, is run.Voted) string {
	a, b := was.Result, is.Result
	switch {
	case a.Rule != b.Rule:
		return fmt.Sprintf("it is by %s, the log says %s", b.Rule, a.Rule)
	case !slices.Equal(a.Weights, b.Weights):
		return fmt.Sprintf("it gives weights %v, the log says %v", b.Weights, a.Weights)
	case a.Temperature != b.Temperature:
		return fmt.Sprintf("it gives temperature %v, the log says %v", b.Temperature, a.Temperature)
	case a.Vote != b.Vote:
		return fmt.Sprintf("it gives %+v for the vote, the log says %+v", b.Vote, a.Vote)
	case !reflect.DeepEqual(was, is):
		return fmt.Sprintf("it gives %+v, the log says %+v", b, a)
	}
	return ""
}
