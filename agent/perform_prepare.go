package agent

import (
	"context"
	"fmt"
	"io"

	"tensorturn/agent/cache"
	"tensorturn/agent/trainer"
	"tensorturn/domain"
	"tensorturn/domain/blob"
	"tensorturn/domain/run"
	"tensorturn/domain/safetensors"
)

// prepare brings data, base and trainer together.
func (w *worker) prepare(e Prepare) (Input, error) {
	if e.Keep == 0 {
		if err := w.snaps.Clear(); err != nil {
			return nil, ofDisk(err)
		}
	} else {
		w.rename(cache.Line{Run: e.Run, Epoch: e.Epoch, Round: e.Round, Number: e.Number, Boundary: e.Keep})
	}
	if w.trainer != nil && (w.run != e.Run || e.Unit == run.UnitMember) { // each member has a trainer of its own
		w.closeTrainer()
	}
	if e.Base != "" {
		if err := w.pullBase(e.Base, e.Increment); err != nil {
			return nil, ofTransfer(err)
		}
	}
	if w.trainer == nil {
		if err := w.openTrainer(e); err != nil {
			return nil, err
		}
	}
	w.job = e.Job
	if want := e.Job.Layout; want != "" {
		if got := safetensors.LayoutDigest(w.trainer.Layout()); got != want {
			return nil, fmt.Errorf("this machine's trainer describes other tensors (%s) than the run's (%s): install the same release everywhere", got.Short(), want.Short())
		}
	}
	if e.Unit == run.UnitMember {
		if err := w.resume(e); err != nil {
			return nil, err
		}
	}
	if e.Unit == run.UnitTrain {
		if err := w.rejoin(e.Round); err != nil {
			return nil, err
		}
		if err := w.load(e.Base); err != nil {
			return nil, err
		}
	}
	return Prepared{Slot: w.slot, Epoch: e.Epoch}, nil
}

// rejoin has the trainer forget its optimizer state when the slot has missed too many rounds, or comes late into the run.
func (w *worker) rejoin(round int) error {
	missed := round - w.round - 1
	w.round = round
	if missed <= trainer.MaxMissedRounds {
		return nil
	}
	return w.call(func(ctx context.Context, t trainer.Trainer) error { return t.Rejoin(ctx) })
}

// openTrainer opens the run's trainer over data that is fetched as it is read.
func (w *worker) openTrainer(e Prepare) error {
	data, err := blob.Open(w.ctx, e.Job.Data.Blob, w.fetchData)
	if err != nil {
		return ofTransfer(err)
	}
	job := jobOf(e, data)
	job.Device = w.device
	w.opened = w.clock()
	t, err := w.open(w.ctx, job)
	if err != nil {
		return fmt.Errorf("open the trainer: %w", err)
	}
	if w.throttle > 0 {
		slow, err := trainer.Throttle(t, w.throttle)
		if err != nil {
			return fmt.Errorf("%w (%v)", err, t.Close())
		}
		t = slow
	}
	w.trainer, w.run, w.round = t, e.Run, 0
	return nil
}

// fetchData serves the trainer's reads. The data outlives the task that opened it, so the fetch runs under the task
// that reads; a failure is kept, because a trainer may not pass it on as it was.
func (w *worker) fetchData(_ context.Context, d domain.Digest) ([]byte, error) {
	data, err := w.store.get(w.ctx, d, w.meter.moved)
	if err != nil {
		w.mu.Lock()
		w.dataErr = err
		w.mu.Unlock()
	}
	return data, err
}

// load replaces the trainer's weights by those of a blob.
func (w *worker) load(weights domain.Digest) error {
	r, err := w.store.open(w.ctx, weights, w.meter.moved)
	if err != nil {
		return ofTransfer(err)
	}
	return w.loadFrom(r, ofTransfer)
}

// loadFrom loads a stream; mark tells its failures from the trainer's.
func (w *worker) loadFrom(r io.Reader, mark func(error) error) error {
	in := &marked{r: r, mark: mark}
	err := w.call(func(ctx context.Context, t trainer.Trainer) error { return t.Load(ctx, in) })
	if in.err != nil {
		return in.err
	}
	if err != nil {
		return fmt.Errorf("load weights: %w", err)
	}
	return nil
}

// marked remembers a stream's own failure, in case the reader of it wraps the error away.
type marked struct {
	r    io.Reader
	mark func(error) error
	err  error
}

func (m *marked) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if err != nil && err != io.EOF {
		m.err = m.mark(err)
		err = m.err
	}
	return n, err
}
