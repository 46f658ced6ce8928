package agent

import (
	"context"
	"errors"
	"fmt"
	"io"

	"tensorturn/agent/trainer"
	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
	"tensorturn/domain/vote"
)

// jobOf is what the trainer of a unit is opened with. A member has its own spec.
func jobOf(e Prepare, data io.ReaderAt) trainer.Job {
	job := trainer.Job{Run: e.Run, Spec: e.Job.Spec, Dataset: e.Job.Data, Data: data}
	if e.Unit == run.UnitMember {
		job.Spec = run.MemberSpec(e.Job.Spec, e.Member)
		job.Member = e.Member
		job.Rows = run.Bootstrapped(e.Job.Spec, e.Member, e.Job.Data.Samples)
		job.Columns = run.FeaturesOf(e.Job.Spec, e.Member, e.Job.Data.Features)
	}
	return job
}

// resume gives a member's trainer the state it goes on from: its beginning, its newest checkpoint, or its trained weights.
func (w *worker) resume(e Prepare) error {
	w.job.Spec = run.MemberSpec(e.Job.Spec, e.Member)
	switch {
	case e.Base == "":
		if err := w.call(func(ctx context.Context, t trainer.Trainer) error { return t.Init(ctx) }); err != nil {
			return fmt.Errorf("begin member %d: %w", e.Member, err)
		}
		return nil
	case e.Trained:
		return w.load(e.Base)
	}
	r, err := w.store.open(w.ctx, e.Base, w.meter.moved)
	if err != nil {
		return ofTransfer(err)
	}
	in := &marked{r: r, mark: ofTransfer}
	err = w.call(func(ctx context.Context, t trainer.Trainer) error {
		k, ok := trainer.As[trainer.Checkpointer](t)
		if !ok {
			return domain.Invalid("", "this machine's trainer reads no checkpoints", "install the same release everywhere")
		}
		return k.LoadState(ctx, in)
	})
	if in.err != nil {
		return in.err
	}
	if err != nil {
		return fmt.Errorf("resume member %d: %w", e.Member, err)
	}
	return nil
}

// keepMember puts the member's state into the cache; one whose trainer keeps none begins anew when it is requeued.
func (w *worker) keepMember(e KeepMember) (Input, error) {
	k, ok := trainer.As[trainer.Checkpointer](w.trainer)
	if !ok || !k.Keeps() {
		return MemberKept{Slot: w.slot, Epoch: e.Epoch}, nil
	}
	size := &counter{}
	blob, err := w.intoBlob(func(ctx context.Context, _ trainer.Trainer, out io.Writer) error {
		return k.SaveState(ctx, io.MultiWriter(out, size))
	})
	if err != nil {
		return nil, err
	}
	return MemberKept{Slot: w.slot, Epoch: e.Epoch, Blob: blob, Bytes: size.bytes}, nil
}

func (w *worker) finishMember(e FinishMember) (Input, error) {
	blob, err := w.intoBlob(func(ctx context.Context, t trainer.Trainer, out io.Writer) error { return t.Save(ctx, out) })
	if err != nil {
		return nil, err
	}
	layout := w.trainer.Layout()
	_, params, err := measure(layout)
	if err != nil {
		return nil, err
	}
	return MemberFinished{Slot: w.slot, Epoch: e.Epoch, Weights: blob, Layout: safetensors.LayoutDigest(layout), Params: params}, nil
}

// predictMember writes the member's answers on the held-out rows. A trainer that gives none is no failure.
func (w *worker) predictMember(e PredictMember) (Input, error) {
	out := MemberPredicted{Slot: w.slot, Epoch: e.Epoch}
	p, ok := trainer.As[trainer.Predictor](w.trainer)
	if !ok || w.job.Data.Heldout == 0 {
		out.Why = "its trainer gives no probabilities"
		if w.job.Data.Heldout == 0 {
			out.Why = "nothing is held out"
		}
		return out, nil
	}
	var answers vote.Outputs
	var m trainer.Metrics
	err := w.call(func(ctx context.Context, _ trainer.Trainer) (err error) {
		answers, m, err = p.Outputs(ctx, w.meter.stepped)
		return err
	})
	if errors.Is(err, trainer.ErrMute) {
		out.Why = err.Error()
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("predict the held-out rows: %w", err)
	}
	blob, err := w.intoBlob(func(_ context.Context, _ trainer.Trainer, out io.Writer) error {
		return vote.WriteOutputs(out, answers)
	})
	if err != nil {
		return nil, err
	}
	out.Outputs = run.MemberOutputs{Blob: blob, Rows: m.Samples, Classes: answers.Classes, Accuracy: m.Accuracy, Loss: m.Loss}
	return out, nil
}

// counter counts what is written through it.
type counter struct{ bytes int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return len(p), nil
}

// intoBlob has something written into a blob of the cache; failures of the disk are told from the trainer's.
func (w *worker) intoBlob(write func(ctx context.Context, t trainer.Trainer, out io.Writer) error) (domain.Digest, error) {
	out := w.store.writer(w.ctx, w.meter.moved)
	err := w.call(func(ctx context.Context, t trainer.Trainer) error { return write(ctx, t, out) })
	if out.failed != nil {
		return "", out.failed
	}
	if err != nil {
		return "", err
	}
	return out.Close()
}
