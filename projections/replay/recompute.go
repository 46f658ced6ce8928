package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/merge"
	"tensorturn/domain/run"
)

// Scratch holds objects of the rounds under way.
type Scratch interface {
	Put(ctx context.Context, d domain.Digest, data []byte) error
	// Get gives domain.KindNotFound for what is not there.
	Get(ctx context.Context, d domain.Digest) ([]byte, error)
	// Forget drops everything stored before the mark that the last but one call set.
	Forget()
}

// weights reads weights from the store, and from scratch what the store no longer keeps.
type weights struct {
	get  blob.Get
	keep Scratch
}

// find reads an object: the store first, since it is what is to be verified.
func (w *weights) find(ctx context.Context, d domain.Digest) ([]byte, error) {
	b, err := w.get(ctx, d)
	if domain.KindOf(err) == domain.KindNotFound {
		if kept, kerr := w.keep.Get(ctx, d); kerr == nil {
			return kept, nil
		}
	}
	return b, err
}

// recompute does the merge of round i again. ok is false when a blob it needs is gone by the keep policy; everything
// that is there and differs is a domain.KindIntegrity error.
func (l *Log) recompute(ctx context.Context, w *weights, i int) (ok bool, err error) {
	f := l.rounds[i].fact
	if err := l.links(i); err != nil {
		return false, err
	}
	if len(f.Inputs) == 0 { // every contribution was revoked: the model stays
		return true, nil
	}
	next, momentum, err := w.merge(ctx, f)
	if domain.KindOf(err) == domain.KindNotFound {
		if p := l.state.Phase; p == run.PhaseFailed || p == run.PhaseCancelled {
			return false, nil // the deltas of a run that came to nothing are not kept
		}
		return false, &domain.Error{Kind: domain.KindIntegrity, Op: "recompute merge", Why: "an object that must be kept is gone",
			Next: "restore the hub's folder from a backup", Err: err}
	}
	if err != nil {
		return false, err
	}
	if next != f.NextBase || momentum != f.NextMomentum {
		return false, domain.Integrity("recompute merge", fmt.Sprintf("it gives weights %s and momentum %s, the log says %s and %s",
			next, momentum, f.NextBase, f.NextMomentum), "the log or the program that merged is not what it says")
	}
	w.keep.Forget()
	return true, nil
}

// links checks that the round reads what the log's contributions and the round before left.
func (l *Log) links(i int) error {
	r := l.rounds[i]
	if len(r.fact.Inputs) > 0 && !slices.Equal(r.fact.Inputs, r.accepted) {
		return domain.Integrity("check merge", "its inputs are not the contributions that the log accepted", "")
	}
	if i == 0 {
		return nil
	}
	if b := l.rounds[i-1].fact; r.fact.Base != b.NextBase || r.fact.Momentum != b.NextMomentum {
		return domain.Integrity("check merge", "it does not begin where the round before ended", "")
	}
	return nil
}

// merge computes the merge of f again and gives the ids of its results, whose parts go to scratch.
func (w *weights) merge(ctx context.Context, f run.RoundMerged) (base, momentum domain.Digest, err error) {
	job := merge.Job{BaseDigest: f.Base, Eta: f.Eta, Mu: f.Mu}
	if job.Base, err = w.open(ctx, f.Base); err != nil {
		return "", "", err
	}
	if f.Momentum != "" {
		if job.Momentum, err = w.open(ctx, f.Momentum); err != nil {
			return "", "", err
		}
	}
	for _, in := range f.Inputs {
		d, err := w.open(ctx, in.Blob)
		if err != nil {
			return "", "", err
		}
		job.Inputs = append(job.Inputs, merge.Input{Delta: d, Codec: merge.Codec(in.Codec), Samples: in.Samples})
	}
	nb, nm := blob.NewWriter(ctx, w.keep.Put), blob.NewWriter(ctx, w.keep.Put)
	job.NextBase, job.NextMomentum = nb, nm
	if _, err := merge.Merge(job); err != nil {
		return "", "", damagedInput(err, f)
	}
	if base, err = nb.Close(); err != nil {
		return "", "", err
	}
	momentum, err = nm.Close()
	return base, momentum, err
}

// damagedInput names the delta that could not be read, and keeps "gone" apart from "damaged".
func damagedInput(err error, f run.RoundMerged) error {
	var in *merge.InputError
	if !errors.As(err, &in) {
		return err
	}
	d := f.Inputs[in.Index]
	return domain.Integrity("read delta "+string(d.Blob), fmt.Sprintf("contribution %d of %s is %s: %s", d.Number, d.Slot, in.Fault, in.Note),
		"restore the hub's folder from a backup")
}

func (w *weights) open(ctx context.Context, id domain.Digest) (io.Reader, error) {
	return blob.Open(ctx, id, w.find)
}

// readThrough checks every part of a blob that must be there.
func readThrough(ctx context.Context, what string, id domain.Digest, get blob.Get) error {
	r, err := blob.Open(ctx, id, get)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	switch domain.KindOf(err) {
	case "":
		return nil
	case domain.KindNotFound, domain.KindIntegrity:
		return &domain.Error{Kind: domain.KindIntegrity, Op: "read " + what + " " + string(id), Why: "it is damaged or gone",
			Next: "restore the hub's folder from a backup", Err: err}
	}
	return err
}
