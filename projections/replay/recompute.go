package replay

import (
	"context"
	"errors"
	"fmt"
	"io"

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
	// Forget drops everything stored before the mark that the last call but two set: late deltas need the base before
	// the one that they are merged into.
	Forget()
}

const fromBackup = "restore the hub's folder from a backup"

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

// recompute does the merge f again. ok is false when a blob it needs is gone by the keep policy; everything that is
// there and differs is a domain.KindIntegrity error.
func (l *Log) recompute(ctx context.Context, w *weights, f run.RoundMerged) (ok bool, err error) {
	if len(f.Inputs) == 0 {
		return true, nil // every contribution was revoked; Add has seen that the model stays
	}
	got, err := w.merge(ctx, f)
	switch domain.KindOf(err) {
	case "":
	case domain.KindNotFound:
		if p := l.state.Phase; p == run.PhaseFailed || p == run.PhaseCancelled {
			return false, nil // the deltas of a run that came to nothing are not kept
		}
		return false, &domain.Error{Kind: domain.KindIntegrity, Op: "recompute merge", Why: "an object that must be kept is gone", Next: fromBackup, Err: err}
	case domain.KindInvalid: // the log says that it could be merged
		return false, &domain.Error{Kind: domain.KindIntegrity, Op: "recompute merge", Why: "what is stored cannot be merged", Next: fromBackup, Err: err}
	default:
		return false, err
	}
	if want := (outcome{f.NextBase, f.NextMomentum, f.NextResidual, f.Increment}); l.checks.bits && got != want {
		return false, domain.Integrity("recompute merge", fmt.Sprintf("it gives %v, the log says %v", got, want),
			"the log or the program that merged is not what it says")
	}
	w.keep.Forget()
	return true, nil
}

// outcome is what a merge gives: the ids of four blobs, the last two empty without a coded way down.
type outcome struct{ base, momentum, residual, increment domain.Digest }

func (o outcome) String() string {
	s := fmt.Sprintf("weights %s and momentum %s", o.base, o.momentum)
	if o.residual != "" || o.increment != "" {
		s += fmt.Sprintf(", residual %s and increment %s", o.residual, o.increment)
	}
	return s
}

// merge computes the merge of f again and gives the ids of its results, whose parts go to scratch.
func (w *weights) merge(ctx context.Context, f run.RoundMerged) (out outcome, err error) {
	job := merge.Job{BaseDigest: f.Base, Eta: f.Eta, Mu: f.Mu, Down: merge.Down{Codec: merge.Codec(f.Down)}}
	if job.Base, err = blob.Open(ctx, f.Base, w.find); err != nil {
		return out, err
	}
	if f.Momentum != "" {
		if job.Momentum, err = blob.Open(ctx, f.Momentum, w.find); err != nil {
			return out, err
		}
	}
	if f.Residual != "" {
		if job.Down.Residual, err = blob.Open(ctx, f.Residual, w.find); err != nil {
			return out, err
		}
	}
	deltas := make([]*deltaReader, len(f.Inputs))
	for i, in := range f.Inputs {
		r, err := blob.Open(ctx, in.Blob, w.find)
		if err != nil {
			return out, err
		}
		deltas[i] = &deltaReader{r: r}
		input := merge.Input{Delta: deltas[i], Codec: merge.Codec(in.Codec), Samples: in.Samples, Base: in.Base}
		if input.NeedsBase() {
			if input.BaseReader, err = blob.Open(ctx, in.Base, w.find); err != nil {
				return out, err
			}
		}
		job.Inputs = append(job.Inputs, input)
	}
	files := [4]*blob.Writer{blob.NewWriter(ctx, w.keep.Put), blob.NewWriter(ctx, w.keep.Put)}
	job.NextBase, job.NextMomentum = files[0], files[1]
	if f.Down != "" {
		files[2], files[3] = blob.NewWriter(ctx, w.keep.Put), blob.NewWriter(ctx, w.keep.Put)
		job.Down.NextResidual, job.Down.Increment = files[2], files[3]
	}
	if _, err := merge.Merge(job); err != nil {
		return out, inputFailure(err, f, deltas)
	}
	for i, to := range [4]*domain.Digest{&out.base, &out.momentum, &out.residual, &out.increment} {
		if files[i] == nil {
			continue
		}
		if *to, err = files[i].Close(); err != nil {
			return out, err
		}
	}
	return out, nil
}

// deltaReader remembers why a delta could not be read: merge calls every lasting reason unreadable.
type deltaReader struct {
	r   io.Reader
	err error
}

func (d *deltaReader) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	if err != nil && err != io.EOF && d.err == nil {
		d.err = err
	}
	return n, err
}

// inputFailure keeps a delta that is gone apart from one that is damaged, and names the latter.
func inputFailure(err error, f run.RoundMerged, deltas []*deltaReader) error {
	var in *merge.InputError
	if !errors.As(err, &in) {
		return err
	}
	if cause := deltas[in.Index].err; domain.KindOf(cause) == domain.KindNotFound {
		return cause
	}
	d := f.Inputs[in.Index]
	return domain.Integrity("read delta "+string(d.Blob), fmt.Sprintf("contribution %d of %s is %s: %s", d.Number, d.Slot, in.Fault, in.Note), fromBackup)
}

// readThrough checks every part of a blob that must be there. An empty id is none.
func readThrough(ctx context.Context, what string, id domain.Digest, get blob.Get) error {
	if id == "" {
		return nil
	}
	r, err := blob.Open(ctx, id, get)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	switch domain.KindOf(err) {
	case domain.KindNotFound, domain.KindIntegrity:
		return &domain.Error{Kind: domain.KindIntegrity, Op: "read " + what + " " + string(id), Why: "it is damaged or gone", Next: fromBackup, Err: err}
	}
	return err
}
