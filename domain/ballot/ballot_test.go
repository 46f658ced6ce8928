package ballot

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/run"
	"tensorturn/domain/vote"
)

// store is a map of objects.
type store map[domain.Digest][]byte

func (s store) put(_ context.Context, d domain.Digest, data []byte) error {
	s[d] = bytes.Clone(data)
	return nil
}

func (s store) get(_ context.Context, d domain.Digest) ([]byte, error) {
	if b, ok := s[d]; ok {
		return b, nil
	}
	return nil, domain.NotFound("get "+string(d), "it is not there", "")
}

const rows = 60

// said stores outputs of a program's member that is right on all rows but every k-th; edit changes them before.
func (s store) said(t *testing.T, k int, edit func(*vote.Outputs)) domain.Digest {
	t.Helper()
	o := vote.Outputs{Classes: 2}
	for i := range rows {
		o.Labels = append(o.Labels, int32(i%2))
		right := float32(0.9)
		if i%k == 0 {
			right = 0.2
		}
		p := []float32{1 - right, 1 - right}
		p[i%2] = right
		o.Probabilities = append(o.Probabilities, p...)
	}
	if edit != nil {
		edit(&o)
	}
	w := blob.NewWriter(context.Background(), s.put)
	if err := vote.WriteOutputs(w, o); err != nil {
		t.Fatal(err)
	}
	id, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// program is a ballot of a run whose data only its program can read.
func program(members ...domain.Digest) Ballot {
	b := Ballot{Data: run.Dataset{Heldout: rows}, Classes: 2, Rule: vote.Mean}
	for i, d := range members {
		b.Voters = append(b.Voters, run.VoteInput{Member: i + 1, Outputs: d})
	}
	return b
}

func TestLabelsOfAProgram(t *testing.T) {
	s := store{}
	v, err := program(s.said(t, 3, nil), s.said(t, 4, nil), s.said(t, 5, nil)).Count(context.Background(), s.get, nil)
	if err != nil || len(v.Members) != 3 || v.Result.Vote.Accuracy <= v.Result.Mean.Accuracy {
		t.Fatalf("%v, %+v", err, v.Result)
	}
}

// TestFaultsNameMembers: every member's fault is found in one pass, told from the store's and from what is lost.
func TestFaultsNameMembers(t *testing.T) {
	s := store{}
	good := s.said(t, 3, nil)
	for name, c := range map[string]struct {
		bad  domain.Digest
		gone bool
		why  string
	}{
		"other labels":     {s.said(t, 4, func(o *vote.Outputs) { o.Labels[5] = 0 }), false, "row 5 has class 0, other members say 1"},
		"no labels":        {s.said(t, 4, func(o *vote.Outputs) { o.Labels = nil }), false, "no labels"},
		"fewer rows":       {s.said(t, 4, func(o *vote.Outputs) { o.Labels, o.Probabilities = o.Labels[:50], o.Probabilities[:100] }), false, ""},
		"not in the store": {domain.Digest(strings.Repeat("5", 64)), true, "not there"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := program(good, c.bad, s.said(t, 5, nil), c.bad).Count(context.Background(), s.get, nil)
			faults := Faults(err)
			if len(faults) != 2 || faults[0].Input.Member != 2 || faults[1].Input.Member != 4 || faults[0].Gone != c.gone || !strings.Contains(faults[0].Error(), c.why) {
				t.Errorf("%v", err)
			}
		})
	}
	broken := func(context.Context, domain.Digest) ([]byte, error) {
		return nil, domain.Unavailable("get", "disk full", "", nil)
	}
	if _, err := program(good).Count(context.Background(), broken, nil); domain.KindOf(err) != domain.KindUnavailable || Faults(err) != nil {
		t.Errorf("the store's trouble is a member's fault: %v", err)
	}
	if Faults(nil) != nil || Faults(errors.New("other")) != nil {
		t.Error("faults of nothing")
	}
}

// TestTheSingleModelHasNoVote: its fault is named like a member's, and its answer changes nothing of the vote.
func TestTheSingleModelHasNoVote(t *testing.T) {
	s := store{}
	b := program(s.said(t, 3, nil), s.said(t, 4, nil))
	alone, err := b.Count(context.Background(), s.get, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Single = &run.VoteInput{Member: 3, Outputs: s.said(t, 2, nil)}
	with, err := b.Count(context.Background(), s.get, nil)
	if err != nil || with.Result.Single == nil || with.Result.Vote != alone.Result.Vote || len(with.Members) != 2 {
		t.Fatalf("%v, %+v", err, with)
	}
	b.Single.Outputs = domain.Digest(strings.Repeat("5", 64))
	_, err = b.Count(context.Background(), s.get, nil)
	if f := Faults(err); len(f) != 1 || f[0].Input.Member != 3 {
		t.Errorf("%v", err)
	}
}

// TestOneLiarIsAlone: the first member says other labels than all others, and it is the one that leaves the vote.
func TestOneLiarIsAlone(t *testing.T) {
	s := store{}
	liar := s.said(t, 4, func(o *vote.Outputs) {
		for i := range o.Labels {
			o.Labels[i] = 1 - o.Labels[i]
		}
	})
	_, err := program(liar, s.said(t, 3, nil), s.said(t, 5, nil)).Count(context.Background(), s.get, nil)
	if faults := Faults(err); len(faults) != 1 || faults[0].Input.Member != 1 {
		t.Errorf("%v", err)
	}
}
