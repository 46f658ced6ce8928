package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/agent/cache"
	"tensorturn/agent/trainer"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// worker performs the effects of one slot, one after another, on one goroutine. The loop submits and abandons.
type worker struct {
	slot     int
	device   string // UUID of its GPU, empty for the CPU
	store    *store
	open     trainer.Factory
	throttle float64
	clock    func() time.Duration
	post     func(Input)
	log      zerolog.Logger
	box      *mailbox[task]

	mu        sync.Mutex // guards what the loop and a trainer's reads share with the worker's goroutine
	running   task
	abandoned domain.Epoch // the newest one: epochs of a slot grow, so every older one is over too
	dataErr   error        // of a read by the trainer within the running task

	// Owned by the worker's goroutine.
	snaps   *cache.Snapshots
	loss    *losses
	noted   domain.Epoch // lease under whose names the snapshots are noted
	trainer trainer.Trainer
	opened  time.Duration // when the trainer was, by the agent's clock
	torn    bool          // a call into the trainer was cancelled: it may only be closed
	run     domain.RunID
	round   int // newest round the open trainer trained in, 0 when none
	job     wire.Job
	meter   *meter
	ctx     context.Context // of the running task
}

// task is one effect with the means to stop it. A clean-up has no effect.
type task struct {
	effect Effect
	epoch  domain.Epoch
	ctx    context.Context
	cancel context.CancelFunc
}

// submit gives the worker an effect of the epoch.
func (w *worker) submit(ctx context.Context, epoch domain.Epoch, e Effect) {
	ctx, cancel := context.WithCancel(ctx)
	w.box.push(task{effect: e, epoch: epoch, ctx: ctx, cancel: cancel})
}

// abandon stops what runs under the epoch, takes back what waits, and has its snapshots removed unless they shall be
// kept. It does not wait.
func (w *worker) abandon(epoch domain.Epoch, keep bool) {
	w.mu.Lock()
	w.abandoned = epoch
	if w.running.cancel != nil && w.running.epoch <= epoch {
		w.running.cancel()
	}
	w.mu.Unlock()
	w.box.remove(func(t task) bool {
		gone := t.effect == nil || t.epoch > 0 && t.epoch <= epoch
		if gone && t.cancel != nil {
			t.cancel()
		}
		return gone
	})
	if !keep {
		w.box.push(task{epoch: epoch})
	}
}

// loop performs tasks until ctx ends; then it frees the trainer.
func (w *worker) loop(ctx context.Context) {
	defer w.closeTrainer()
	for {
		t, ok := w.box.pop(ctx)
		if !ok {
			return
		}
		switch t.effect.(type) {
		case nil:
			if err := w.snaps.Clear(); err != nil {
				w.log.Warn().Err(err).Msg("old snapshots stay")
			}
		case CloseTrainer:
			w.closeTrainer()
		default:
			w.perform(t)
		}
		if t.cancel != nil {
			t.cancel()
		}
	}
}

// perform runs one effect and posts its result, unless it was abandoned.
func (w *worker) perform(t task) {
	w.mu.Lock()
	over := t.epoch <= w.abandoned
	w.running, w.dataErr = t, nil
	w.mu.Unlock()
	if over {
		return
	}
	w.ctx, w.torn = t.ctx, false
	w.meter = newMeter(w.slot, t.epoch, w.clock, w.post)
	result, err := w.guarded(t.effect)
	w.mu.Lock()
	w.running = task{}
	w.mu.Unlock()
	if t.ctx.Err() != nil {
		if w.torn {
			w.closeTrainer()
		}
		return
	}
	w.meter.flush()
	if err != nil {
		result = w.failure(t.epoch, err)
	}
	w.post(result)
}

// guarded turns a panic of the trainer into a task error: other slots must not die of it.
func (w *worker) guarded(e Effect) (result Input, err error) {
	defer func() {
		if p := recover(); p != nil {
			w.log.Error().Interface("panic", p).Bytes("stack", debug.Stack()).Msg("trainer panicked")
			w.torn = true
			result, err = nil, fmt.Errorf("the trainer panicked: %v", p)
		}
	}()
	switch e := e.(type) {
	case Prepare:
		return w.prepare(e)
	case Train:
		return w.train(e)
	case Reset:
		return w.reset(e)
	case MakeDelta:
		return w.makeDelta(e)
	case Upload:
		return w.upload(e)
	case RunInit:
		return w.runInit(e)
	case RunEvaluate:
		return w.runEvaluate(e)
	case KeepMember:
		return w.keepMember(e)
	case FinishMember:
		return w.finishMember(e)
	case PredictMember:
		return w.predictMember(e)
	}
	panic(fmt.Sprintf("broken promise: a slot cannot perform %T", e))
}

// failure sorts an error: link and disk heal with time, everything else is the trainer's.
func (w *worker) failure(epoch domain.Epoch, err error) Input {
	w.mu.Lock()
	data := w.dataErr
	w.mu.Unlock()
	var t *transferFailure
	if errors.As(err, &t) || data != nil {
		w.log.Warn().Err(err).Uint64("epoch", uint64(epoch)).Msg("transfer failed, tried again")
		return TransferError{Slot: w.slot, Epoch: epoch, Error: err.Error(), Local: t != nil && t.local}
	}
	w.log.Error().Err(err).Uint64("epoch", uint64(epoch)).Msg("trainer failed")
	w.closeTrainer()
	lines := trainer.LastLines(err)
	return TaskError{Slot: w.slot, Epoch: epoch, Error: err.Error(), Tail: lines[max(0, len(lines)-run.MaxTailLines):]}
}

// call runs f inside the trainer and notes whether it was torn off there.
func (w *worker) call(f func(ctx context.Context, t trainer.Trainer) error) error {
	if w.trainer == nil {
		return errors.New("no trainer is open")
	}
	err := f(w.ctx, w.trainer)
	if err != nil && w.ctx.Err() != nil {
		w.torn = true
	}
	return err
}

func (w *worker) closeTrainer() {
	if w.trainer == nil {
		return
	}
	if err := w.trainer.Close(); err != nil {
		w.log.Warn().Err(err).Msg("trainer did not close well")
	}
	w.trainer, w.run = nil, ""
}
