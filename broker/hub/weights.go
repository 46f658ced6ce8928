package hub

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"tensorturn/broker"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/merge"
	"tensorturn/domain/run"
)

// writeBuffer gathers the tiles of a merge before they are hashed and cut into parts.
const writeBuffer = 256 << 10

// weights is what the workers read and write: blobs of safetensors. It judges nothing and decides nothing.
type weights struct{ blobs broker.Blobs }

// inspect reads an offered delta beside its base. What is wrong with the delta is a finding; a delta that is not there
// is a domain.KindNotFound error, so that it is asked for again; every other error means that nothing was found out.
func (w weights) inspect(ctx context.Context, j InspectJob) Inspected {
	out := Inspected{Job: j}
	base, err := w.open(ctx, j.Base)
	if err != nil {
		out.Err = ownLoss("read base", err)
		return out
	}
	delta, err := w.openDelta(ctx, j.Offer.Blob)
	if err != nil {
		out.Err = err
		return out
	}
	if delta == nil {
		out.Found = run.Inspection{Why: run.RefusedUnreadable, Note: "the blob is not one: it has no manifest"}
		return out
	}
	found, err := merge.Inspect(base, delta, merge.Expect{Codec: merge.Codec(j.Offer.Codec), Base: j.Base, Layout: j.Layout})
	switch {
	case delta.lost != nil:
		out.Err = delta.lost
	case err != nil:
		out.Err = ownLoss("inspect delta", err)
	default:
		out.Found = run.Inspection{Why: run.Refusal(found.Why), Note: found.Note, Norm: found.Norm, Bytes: delta.size}
	}
	return out
}

// merge writes the next base and momentum of a closed round. The blobs it writes are named by nobody until the result
// is decided; a merge that is repeated writes the same ones.
func (w weights) merge(ctx context.Context, j MergeJob) Merged {
	out := Merged{Job: j}
	job := merge.Job{BaseDigest: j.Base, Eta: j.Eta, Mu: j.Mu}
	base, err := w.open(ctx, j.Base)
	if err != nil {
		out.Err = fmt.Errorf("read base of round %d: %w", j.Round, err)
		return out
	}
	job.Base, out.BaseBytes = base, base.Size()
	if j.Momentum != "" {
		momentum, err := w.open(ctx, j.Momentum)
		if err != nil {
			out.Err = fmt.Errorf("read momentum of round %d: %w", j.Round, err)
			return out
		}
		job.Momentum = momentum
	}
	if j.Residual != "" {
		residual, err := w.open(ctx, j.Residual)
		if err != nil {
			out.Err = fmt.Errorf("read residual of round %d: %w", j.Round, err)
			return out
		}
		job.Down.Residual = residual
	}
	job.Down.Codec = merge.Codec(j.Down)
	deltas := make([]*deltaReader, len(j.Inputs))
	for i, in := range j.Inputs {
		d, err := w.openDelta(ctx, in.Blob)
		switch {
		case d == nil && (err == nil || domain.KindOf(err) == domain.KindNotFound):
			out.Unreadable = append(out.Unreadable, in)
			continue
		case err != nil:
			out.Err = err
			return out
		}
		deltas[i] = d
		out.InputBytes += d.size
		input := merge.Input{Delta: d, Codec: merge.Codec(in.Codec), Samples: in.Samples, Base: in.Base}
		if input.NeedsBase() {
			from, err := w.open(ctx, in.Base)
			if err != nil {
				out.Err = fmt.Errorf("read the previous base for round %d: %w", j.Round, err)
				return out
			}
			input.BaseReader = from
		}
		job.Inputs = append(job.Inputs, input)
	}
	if len(out.Unreadable) > 0 {
		return out
	}
	w.arithmetic(ctx, job, deltas, &out)
	return out
}

// arithmetic runs the merge into two new blobs.
func (w weights) arithmetic(ctx context.Context, job merge.Job, deltas []*deltaReader, out *Merged) {
	base, momentum := w.create(ctx), w.create(ctx)
	job.NextBase, job.NextMomentum = base, momentum
	var residual, increment *output
	if job.Down.Codec != "" {
		residual, increment = w.create(ctx), w.create(ctx)
		job.Down.NextResidual, job.Down.Increment = residual, increment
	}
	res, err := merge.Merge(job)
	for i, d := range deltas {
		switch {
		case d.lost == nil:
		case domain.KindOf(d.lost) == domain.KindNotFound:
			out.Unreadable = append(out.Unreadable, out.Job.Inputs[i])
		case out.Err == nil:
			out.Err = d.lost
		}
	}
	if out.Err != nil {
		out.Unreadable = nil // nothing is sure while the store is in trouble
		return
	}
	if len(out.Unreadable) > 0 {
		return
	}
	var input *merge.InputError
	if errors.As(err, &input) {
		out.Unreadable = append(out.Unreadable, out.Job.Inputs[input.Index])
		return
	}
	if err != nil {
		out.Err = err
		return
	}
	out.StepNorm = res.StepNorm
	for _, o := range []struct {
		what string
		from *output
		to   *domain.Digest
	}{{"base", base, &out.Base}, {"momentum", momentum, &out.Momentum}, {"residual", residual, &out.Residual}, {"increment", increment, &out.Increment}} {
		if o.from == nil {
			continue
		}
		if *o.to, err = o.from.finish(); err != nil {
			out.Err = fmt.Errorf("store next %s: %w", o.what, err)
			return
		}
	}
	if increment != nil {
		out.IncrementBytes = increment.blob.Manifest().Size
	}
}

// output is a blob that a merge writes.
type output struct {
	*bufio.Writer
	blob *blob.Writer
}

func (w weights) create(ctx context.Context) *output {
	b := blob.NewWriter(ctx, w.blobs.Put)
	return &output{bufio.NewWriterSize(b, writeBuffer), b}
}

func (o *output) finish() (domain.Digest, error) {
	if err := o.Flush(); err != nil {
		return "", err
	}
	return o.blob.Close()
}

func (w weights) open(ctx context.Context, id domain.Digest) (*blob.Reader, error) {
	return blob.Open(ctx, id, w.blobs.Get)
}

// ownLoss is an error about something of the hub's own: whatever its kind, the agent is not asked for its delta again.
func ownLoss(what string, err error) error {
	return domain.Unavailable(what, "the hub cannot read its own store", "look at the hub's disk", err)
}

// deltaReader reads an agent's delta and remembers when the store lost a part of it: that is not the agent's fault.
type deltaReader struct {
	r    io.Reader
	size int64
	lost error // domain.KindNotFound, or the store's passing trouble
}

func (d *deltaReader) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	if k := domain.KindOf(err); err != nil && err != io.EOF && k != domain.KindIntegrity && d.lost == nil {
		d.lost = err // a manifest that lies about its parts is domain.KindIntegrity: that is the agent's, and a finding
	}
	return n, err
}

// getOrRemove reads an object that an agent can give again. One that is damaged in the store is removed and is not there.
func (w weights) getOrRemove(ctx context.Context, d domain.Digest) ([]byte, error) {
	b, err := w.blobs.Get(ctx, d)
	if domain.KindOf(err) == domain.KindIntegrity {
		if gone := w.blobs.Delete(ctx, d); gone != nil {
			return nil, gone
		}
		err = domain.NotFound("read object", "object "+string(d)+" was damaged in the store and is removed", "")
	}
	return b, err
}

// openDelta opens a delta. A part that is missing or damaged in the store is domain.KindNotFound; a damaged one is
// deleted first, because the agent's second upload would otherwise find it there and leave it. Nil without an error is
// an object that is stored well and is not a blob.
func (w weights) openDelta(ctx context.Context, id domain.Digest) (*deltaReader, error) {
	r, err := blob.Open(ctx, id, w.getOrRemove)
	if domain.KindOf(err) == domain.KindIntegrity {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &deltaReader{r: r, size: r.Size()}, nil
}
