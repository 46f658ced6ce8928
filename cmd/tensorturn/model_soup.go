package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"tensorturn/agent/trainer"
	"tensorturn/agent/trainer/builtin"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/merge"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
)

// soupCard is tensorturn.json of a soup.
type soupCard struct {
	card
	Soup     []int   `json:"soup"` // members whose weights were averaged
	Accuracy float64 `json:"held_out_accuracy"`
	Loss     float64 `json:"held_out_loss"`
	VoteHeld float64 `json:"vote_accuracy,omitempty"` // of the vote, on its test rows, for comparison
}

// mayBeSoup refuses to average weights that have no common start, and says why: independently started networks number
// their hidden units in orders of their own, so that the mean of their weights is the mean of nothing (experiment E13n: members
// above 90 % give an average near 60 %).
func mayBeSoup(r runs.Run) ([]*runs.Member, error) {
	op := "average the members of " + string(r.ID)
	const instead = "take the ensemble out without --soup; to make members that can be averaged: recipe: {seed: false, bootstrap: true}"
	if r.Spec.Ensemble == nil {
		return nil, domain.Invalid(op, "the run is no ensemble", "leave --soup out: a fused run is one model already")
	}
	if r.Spec.Trainer == run.Process {
		return nil, domain.Conflict(op, "whether your program starts all members from the same weights is not known here", "average them in your program, and measure the result")
	}
	if own := r.Spec.Ensemble.Recipe.Seed; own == nil || *own {
		return nil, domain.Conflict(op, "its members began with different weights, each with a seed of its own; the average of such weights is no model", instead)
	}
	if len(r.Spec.Ensemble.Recipe.Grid.Hidden) > 0 {
		return nil, domain.Conflict(op, "its members have different widths", instead)
	}
	var in []*runs.Member
	for _, m := range r.Members {
		if m.Status == run.MemberIn && !m.Single {
			in = append(in, m)
		}
	}
	if len(in) < 2 {
		return nil, domain.Conflict(op, count(len(in), "member")+" came in", "an average needs two")
	}
	return in, nil
}

// exportSoup writes the plain mean of the members' weights as one model, and measures it on the held-out rows.
func (a *app) exportSoup(ctx context.Context, cl *client, r runs.Run, dir string) error {
	members, err := mayBeSoup(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return domain.Invalid("export model", plainPathError(err), "choose another folder")
	}
	path := filepath.Join(dir, "model.safetensors")
	sum, err := writeSoup(ctx, cl, members, path)
	if err != nil {
		return err
	}
	spec := run.MemberSpec(r.Spec, members[0].Number)
	c := soupCard{card: cardOf(r)}
	c.SHA256 = sum
	for _, m := range members {
		c.Soup = append(c.Soup, m.Number)
	}
	measured, err := measure(ctx, cl, r, spec, path)
	if err != nil {
		return err
	}
	c.Accuracy, c.Loss = measured.Accuracy, measured.Loss
	if r.Vote != nil {
		c.VoteHeld = r.Vote.Result.Vote.Accuracy
	}
	facts, err := factsOf(ctx, cl, r)
	if err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(dir, "config.json"), configOf(spec, *facts)); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(dir, "tensorturn.json"), c); err != nil {
		return err
	}
	if a.json {
		return a.object(c)
	}
	a.say("wrote the mean of the weights of %s as one model to %s: accuracy %.4f on %s", count(len(c.Soup), "member"), dir, c.Accuracy, count(measured.Samples, "held-out row"))
	return nil
}

// writeSoup is a merge with an outer step of 1 and no momentum: theta' is the mean of the local weights, in float64 and in the
// members' order (domain/merge).
func writeSoup(ctx context.Context, cl *client, members []*runs.Member, path string) (domain.Digest, error) {
	tmp, err := os.MkdirTemp("", "tensorturn-soup-")
	if err != nil {
		return "", domain.Unavailable("average members", "no temporary folder can be made", "set TMPDIR to a folder with space", err)
	}
	defer os.RemoveAll(tmp)
	open := func(m *runs.Member) (io.Reader, error) { return blob.Open(ctx, m.Weights, cl.getPart) }
	base := members[0].Weights
	job := merge.Job{BaseDigest: base, Eta: 1, NextMomentum: io.Discard}
	if job.Base, err = open(members[0]); err != nil {
		return "", err
	}
	for _, m := range members {
		name := filepath.Join(tmp, itoa(m.Number))
		if err := localAsDelta(open, members[0], m, base, name); err != nil {
			return "", err
		}
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer f.Close()
		job.Inputs = append(job.Inputs, merge.Input{Delta: f, Codec: merge.CodecFP32, Samples: 1})
	}
	out, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o644))
	if err != nil {
		return "", domain.Invalid("export model", plainPathError(err), "choose another folder")
	}
	defer out.Cleanup()
	h := newHash()
	job.NextBase = io.MultiWriter(out, h)
	if _, err := merge.Merge(job); err != nil {
		return "", fmt.Errorf("average members: %w", err)
	}
	return h.digest(), out.CloseAtomicallyReplace()
}

// localAsDelta writes a member's weights in the form that a merge reads.
func localAsDelta(open func(*runs.Member) (io.Reader, error), first, m *runs.Member, base domain.Digest, path string) error {
	b, err := open(first)
	if err != nil {
		return err
	}
	l, err := open(m)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	if _, err := merge.EncodeDelta(merge.CodecFP32, b, l, base, w); err != nil {
		return fmt.Errorf("member %d: %w", m.Number, err)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// measure evaluates a model file on the run's held-out rows, on this machine.
func measure(ctx context.Context, cl *client, r runs.Run, spec run.Spec, path string) (trainer.Metrics, error) {
	data, err := blob.Open(ctx, r.Data.Blob, cl.getPart)
	if err != nil {
		return trainer.Metrics{}, err
	}
	t, err := builtin.Open(ctx, trainer.Job{Run: r.ID, Spec: spec, Dataset: r.Data, Data: data})
	if err != nil {
		return trainer.Metrics{}, err
	}
	defer t.Close()
	f, err := os.Open(path)
	if err != nil {
		return trainer.Metrics{}, err
	}
	defer f.Close()
	if err := t.Load(ctx, f); err != nil {
		return trainer.Metrics{}, err
	}
	return t.Evaluate(ctx, nil)
}
