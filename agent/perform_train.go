package agent

import (
	"context"
	"errors"
	"fmt"
	"io"

	"tensorturn/agent/cache"
	"tensorturn/agent/trainer"
	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

// train trains one chunk and saves the boundary's snapshot.
func (w *worker) train(e Train) (Input, error) {
	begin := w.clock()
	var done trainer.Result
	err := w.call(func(ctx context.Context, t trainer.Trainer) (err error) {
		done, err = t.Train(ctx, e.Chunk, w.meter.stepped)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("train chunk %d: %w", e.Chunk, err)
	}
	if e.Boundary > 0 { // a member's weights are kept in checkpoints
		if err := w.snapshot(e.Boundary); err != nil {
			return nil, err
		}
		w.snaps.Prune(e.Boundary - KeptBoundaries + 1)
		w.note(e, done, (w.clock() - begin).Seconds())
	}
	trained := ChunkTrained{
		Slot: w.slot, Epoch: e.Epoch, Chunk: e.Chunk, Steps: done.Steps, Loss: done.Loss,
		Samples: run.ChunkSamples(w.job.Spec, w.job.Data, e.Chunk), Seconds: (w.clock() - begin).Seconds(), All: done.All,
	}
	if done.All { // a program that trains alone has done so since it was started: this call is only its end
		trained.Seconds = (w.clock() - w.opened).Seconds()
		trained.Samples = int(run.TotalSamples(w.job.Spec, w.job.Data))
	}
	return trained, nil
}

// note writes beside the snapshot what it holds, so that the machine's next process can turn it in. Without the note a killed
// process costs its trained chunks, no more: a failure is no reason to stop.
func (w *worker) note(e Train, done trainer.Result, seconds float64) {
	if !run.IsLoss(done.Loss) {
		return // the chunk will be refused
	}
	w.noted = e.Epoch
	err := w.snaps.Note(cache.Line{Run: w.run, Epoch: e.Epoch, Round: w.round, Number: e.Number, Boundary: e.Boundary, Chunk: &e.Chunk,
		Steps: done.Steps, Seconds: seconds, Loss: done.Loss})
	if err != nil {
		w.log.Warn().Err(err).Msg("what was trained is not noted")
	}
}

// rename notes the names of the lease that has taken over what was trained under an earlier one, or by an earlier process.
func (w *worker) rename(l cache.Line) {
	if l.Epoch == w.noted {
		return
	}
	w.noted = l.Epoch
	if err := w.snaps.Note(l); err != nil {
		w.log.Warn().Err(err).Msg("adopted work is not noted")
	}
}

func (w *worker) snapshot(boundary int) error {
	size, _, err := measure(w.trainer.Layout())
	if err != nil {
		return err
	}
	var own error // the trainer's
	err = w.snaps.Save(boundary, size, func(out io.Writer) error {
		own = w.call(func(ctx context.Context, t trainer.Trainer) error { return t.Save(ctx, out) })
		return own
	})
	if err != nil && (own == nil || domain.KindOf(err) == domain.KindUnavailable) {
		return ofDisk(err)
	}
	return err
}

// reset gives the trainer a boundary's weights.
func (w *worker) reset(e Reset) (Input, error) {
	if e.Boundary == 0 {
		if err := w.snaps.Clear(); err != nil {
			return nil, ofDisk(err)
		}
		if err := w.load(e.Base); err != nil {
			return nil, err
		}
		return ResetDone{Slot: w.slot, Epoch: e.Epoch}, nil
	}
	f, err := w.snaps.Open(e.Boundary)
	if err != nil {
		return nil, ofDisk(err)
	}
	defer func() { _ = f.Close() }()
	in := &marked{r: f, mark: ofDisk}
	if err := w.loadFrom(in, ofDisk); err != nil {
		return nil, err
	}
	if err := drain(in); err != nil {
		return nil, err
	}
	return ResetDone{Slot: w.slot, Epoch: e.Epoch, Boundary: e.Boundary}, nil
}

// drain reads to the end, where a snapshot says whether its bytes were those that were saved.
func drain(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// runInit makes the first base.
func (w *worker) runInit(e RunInit) (Input, error) {
	layout := w.trainer.Layout()
	_, params, err := measure(layout)
	if err != nil {
		return nil, err
	}
	out := w.store.writer(w.ctx, w.meter.moved)
	err = w.call(func(ctx context.Context, t trainer.Trainer) error {
		if err := t.Init(ctx); err != nil {
			return err
		}
		return t.Save(ctx, out)
	})
	if out.failed != nil {
		return nil, out.failed
	}
	if err != nil {
		return nil, fmt.Errorf("make the first base: %w", err)
	}
	base, err := out.Close()
	if err != nil {
		return nil, err
	}
	take, err := w.dryStep()
	if err != nil {
		return nil, fmt.Errorf("try a step before the run spreads: %w", err)
	}
	return InitDone{Slot: w.slot, Epoch: e.Epoch, Base: base, Layout: safetensors.LayoutDigest(layout), Params: params, Take: take}, nil
}

// dryStep measures what a step takes, nil where the trainer cannot tell. It speaks of memory alone: whatever else is wrong with a step
// is found and told when the run trains. The trainer is closed then, since its optimizer and random state have moved on.
func (w *worker) dryStep() (*run.Memory, error) {
	dry, ok := trainer.As[trainer.Dry](w.trainer)
	if !ok {
		return nil, nil
	}
	var take run.Memory
	err := w.call(func(ctx context.Context, _ trainer.Trainer) (err error) {
		take, err = dry.Dry(ctx, 0, w.meter.stepped)
		return err
	})
	var memory interface{ OutOfMemory() bool }
	switch {
	case err == nil:
		w.closeTrainer()
		return &take, nil
	case w.ctx.Err() != nil, errors.As(err, &memory) && memory.OutOfMemory():
		return nil, err
	}
	w.log.Warn().Err(err).Msg("a dry step failed; the run goes on without its figures")
	w.closeTrainer()
	return nil, nil
}

// runEvaluate measures a model.
func (w *worker) runEvaluate(e RunEvaluate) (Input, error) {
	if err := w.load(e.Model); err != nil {
		return nil, err
	}
	var m trainer.Metrics
	err := w.call(func(ctx context.Context, t trainer.Trainer) (err error) {
		m, err = t.Evaluate(ctx, w.meter.stepped)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("evaluate: %w", err)
	}
	return Evaluated{Slot: w.slot, Epoch: e.Epoch, Samples: m.Samples, Accuracy: m.Accuracy, Loss: m.Loss, R2: m.R2, MAE: m.MAE}, nil
}

// measure gives the bytes and the number of values of a layout.
func measure(ts []safetensors.Tensor) (size, values int64, err error) {
	for _, t := range ts {
		b, err := t.Bytes()
		if err != nil {
			return 0, 0, err
		}
		n, err := t.Count()
		if err != nil {
			return 0, 0, err
		}
		size, values = size+b, values+n
	}
	return size, values, nil
}
