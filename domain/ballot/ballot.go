// Package ballot computes a run's vote from what is stored: it reads the members' outputs and the labels of the held-out
// rows and gives them to domain/vote. What it reads into memory is bounded by vote.MaxValues and one part of each blob.
//
// The hub's vote worker and run replay --verify both call Count, so that they cannot differ. It decides nothing (domain/run
// does) and stores nothing.
package ballot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
	"tensorturn/domain/vote"
)

// Ballot says over what is voted, and how.
type Ballot struct {
	Data    run.Dataset
	Packed  bool // Data.Blob holds the labels; otherwise the members' outputs do, since a program reads data of its own
	Rule    vote.Rule
	Classes int
	Voters  []run.VoteInput // by number
	Single  *run.VoteInput  // compared, without a vote; nil: none
}

// Of is the ballot of a run that waits for its vote or has voted.
func Of(s *run.State) Ballot {
	b := Ballot{Data: s.Data, Packed: s.Spec.Trainer != run.Process, Rule: s.Spec.Ensemble.Vote, Classes: s.Data.Classes}
	for _, m := range s.Voters() {
		if b.Classes == 0 {
			b.Classes = m.Outputs.Classes
		}
		b.Voters = append(b.Voters, run.VoteInput{Member: m.Number, Outputs: m.Outputs.Blob})
	}
	for i := range s.Ensemble.Members {
		if m := &s.Ensemble.Members[i]; m.Single && m.Status == run.MemberIn && m.Outputs != nil {
			b.Single = &run.VoteInput{Member: m.Number, Outputs: m.Outputs.Blob}
		}
	}
	return b
}

// InputError says that one member's outputs cannot be used. Gone: its bytes are missing from the store, and whoever made
// them may give them again; otherwise they are there and are no outputs.
type InputError struct {
	Input run.VoteInput
	Gone  bool
	Err   error
}

func (e *InputError) Error() string {
	return fmt.Sprintf("outputs %s of member %d: %v", e.Input.Outputs.Short(), e.Input.Member, e.Err)
}

// Unwrap gives the cause.
func (e *InputError) Unwrap() error { return e.Err }

// Count reads the ballot and votes. outputs fetches members' outputs, data the packed data set. Faults of members are
// joined *InputErrors, all that were found; any other error is not a member's.
func (b Ballot) Count(ctx context.Context, outputs, data blob.Get) (run.Voted, error) {
	const op = "count votes"
	all := b.inputs()
	if len(b.Voters) == 0 || len(all) > vote.MaxMembers+1 || b.Data.Heldout == 0 {
		return run.Voted{}, domain.Invalid(op, fmt.Sprintf("%d members and %d held-out rows", len(b.Voters), b.Data.Heldout), "")
	}
	stride := vote.Stride(len(all), b.Data.Heldout, b.Classes)
	in := vote.Input{Classes: b.Classes}
	var err error
	if b.Packed {
		if in.Labels, err = labels(ctx, b.Data, stride, data); err != nil {
			return run.Voted{}, fmt.Errorf("%s: read labels: %w", op, err)
		}
	}
	outs, faults, err := b.readAll(ctx, all, stride, outputs)
	if err != nil {
		return run.Voted{}, fmt.Errorf("%s: %w", op, err)
	}
	if !b.Packed {
		in.Labels = truth(outs)
	}
	for i, o := range outs {
		if o == nil {
			continue
		}
		switch err := b.agree(in.Labels, o); {
		case err != nil:
			faults = append(faults, &InputError{Input: all[i], Err: err})
		case i < len(b.Voters):
			in.Members = append(in.Members, o.Probabilities)
		default:
			in.Single = o.Probabilities
		}
	}
	if len(faults) > 0 {
		slices.SortFunc(faults, func(x, y *InputError) int { return cmp.Compare(x.Input.Member, y.Input.Member) })
		joined := make([]error, len(faults))
		for i, f := range faults {
			joined[i] = f
		}
		return run.Voted{}, errors.Join(joined...)
	}
	r, err := vote.Compute(in, b.Rule)
	var bad *vote.MemberError
	if errors.As(err, &bad) {
		at := bad.Member
		if at == vote.SingleMember {
			at = len(b.Voters)
		}
		return run.Voted{}, errors.Join(&InputError{Input: all[at], Err: errors.New(bad.Why)})
	}
	if err != nil {
		return run.Voted{}, fmt.Errorf("%s: %w", op, err)
	}
	return run.Voted{Members: b.Voters, Single: b.Single, Result: r}, nil
}

// Faults lists the members' faults in an error of Count, none when it is something else.
func Faults(err error) (list []*InputError) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	for _, e := range joined.Unwrap() {
		var theirs *InputError
		if !errors.As(e, &theirs) {
			return nil
		}
		list = append(list, theirs)
	}
	return list
}

// inputs lists voters, then the single model.
func (b Ballot) inputs() []run.VoteInput {
	all := append([]run.VoteInput(nil), b.Voters...)
	if b.Single != nil {
		all = append(all, *b.Single)
	}
	return all
}

// read reads one member's outputs. What is missing or wrong with them is an *InputError.
func (b Ballot) read(ctx context.Context, v run.VoteInput, stride int, get blob.Get) (vote.Outputs, error) {
	r, err := blob.Open(ctx, v.Outputs, get)
	if err == nil {
		var o vote.Outputs
		if o, err = vote.ReadOutputs(r, b.Data.Heldout, b.Classes, stride); err == nil {
			return o, nil
		}
	}
	switch domain.KindOf(err) {
	case domain.KindNotFound:
		return vote.Outputs{}, &InputError{Gone: true, Err: err}
	case domain.KindIntegrity, domain.KindInvalid:
		return vote.Outputs{}, &InputError{Err: err}
	}
	return vote.Outputs{}, err
}

// readAll reads the outputs of all, nil for those with a fault.
func (b Ballot) readAll(ctx context.Context, all []run.VoteInput, stride int, get blob.Get) (outs []*vote.Outputs, faults []*InputError, err error) {
	outs = make([]*vote.Outputs, len(all))
	for i, v := range all {
		o, err := b.read(ctx, v, stride, get)
		var theirs *InputError
		switch {
		case err == nil:
			outs[i] = &o
		case errors.As(err, &theirs):
			theirs.Input = v
			faults = append(faults, theirs)
		default:
			return nil, nil, err
		}
	}
	return outs, faults, nil
}

// truth gives the labels that most members say, of as many the first: one machine that lies about the rows must not make
// liars of all others. nil when nobody says any.
func truth(outs []*vote.Outputs) []int32 {
	var said [][]int32
	var by []int
	for _, o := range outs {
		if o == nil || o.Labels == nil {
			continue
		}
		i := slices.IndexFunc(said, func(l []int32) bool { return slices.Equal(l, o.Labels) })
		if i < 0 {
			said, by = append(said, o.Labels), append(by, 0)
			i = len(said) - 1
		}
		by[i]++
	}
	best := -1
	for i, n := range by {
		if best < 0 || n > by[best] {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	return said[best]
}

// agree refuses a program's outputs with labels that are not those of most members.
func (b Ballot) agree(labels []int32, o *vote.Outputs) error {
	switch {
	case b.Packed:
		return nil // the data's own are the truth
	case o.Labels == nil:
		return domain.Invalid("", "it has no labels, and the run's data has none", "")
	}
	for i, l := range labels {
		if o.Labels[i] != l {
			return domain.Invalid("", fmt.Sprintf("row %d has class %d, other members say %d", i, o.Labels[i], l), "")
		}
	}
	return nil
}

// labelRows is how many rows are read at a time to see their labels.
const labelRows = 1024

// labels reads the classes of held-out rows 0, stride, 2·stride, … of the packed data.
func labels(ctx context.Context, d run.Dataset, stride int, get blob.Get) ([]int32, error) {
	r, err := blob.Open(ctx, d.Blob, get)
	if err != nil {
		return nil, err
	}
	set, err := dataset.Open(r, r.Size())
	if err != nil {
		return nil, err
	}
	if f := set.Facts(); f.Heldout != d.Heldout || len(f.Classes) != d.Classes {
		return nil, domain.Integrity("", fmt.Sprintf("the packed data has %d held-out rows and %d classes, the run says %d and %d", f.Heldout, len(f.Classes), d.Heldout, d.Classes), "")
	}
	out := make([]int32, 0, d.Heldout/stride+1)
	features, classes := make([]float32, min(labelRows, d.Heldout)*set.Facts().Features()), make([]int, min(labelRows, d.Heldout))
	for from := 0; from < d.Heldout; from += labelRows {
		n := min(labelRows, d.Heldout-from)
		if err := set.Heldout(from, n, features[:n*set.Facts().Features()], classes[:n]); err != nil {
			return nil, err
		}
		for i, c := range classes[:n] {
			if (from+i)%stride == 0 {
				out = append(out, int32(c))
			}
		}
	}
	return out, nil
}
