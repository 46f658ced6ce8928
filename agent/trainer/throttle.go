package trainer

import (
	"context"
	"fmt"
	"time"

	"tensorturn/domain"
)

// Throttle slows a trainer to factor times its own speed: it waits after each step of Train and Evaluate, in
// proportion to the time the step took. A wait that came out too long is taken off the next one. It serves trials
// with machines of different speeds on one computer. factor is in (0, 1]; 1 gives the trainer itself.
func Throttle(t Trainer, factor float64) (Trainer, error) {
	if !(factor > 0 && factor <= 1) {
		return nil, domain.Invalid("throttle trainer", fmt.Sprintf("factor %v", factor), "give a number above 0, at most 1")
	}
	if factor == 1 {
		return t, nil
	}
	return &throttled{Trainer: t, idle: 1/factor - 1}, nil
}

// throttled passes everything but the paced methods on.
type throttled struct {
	Trainer
	idle float64 // seconds to wait for each second of work
}

func (t *throttled) Train(ctx context.Context, c domain.ChunkID, progress func(Progress)) (Result, error) {
	p := t.pace(ctx, progress)
	defer p.timer.Stop()
	return t.Trainer.Train(ctx, c, p.step)
}

func (t *throttled) Evaluate(ctx context.Context, progress func(Progress)) (Metrics, error) {
	p := t.pace(ctx, progress)
	defer p.timer.Stop()
	return t.Trainer.Evaluate(ctx, p.step)
}

// minWait keeps timers out of a step that is shorter than they are exact; the debt adds up instead.
const minWait = time.Millisecond

// pacer waits between the steps of one call.
type pacer struct {
	ctx      context.Context
	progress func(Progress)
	idle     float64
	since    time.Time     // when work went on
	debt     time.Duration // wait that is due; negative when the last one was too long
	timer    *time.Timer
}

func (t *throttled) pace(ctx context.Context, progress func(Progress)) *pacer {
	p := &pacer{ctx: ctx, progress: progress, idle: t.idle, since: time.Now(), timer: time.NewTimer(time.Hour)}
	p.timer.Stop()
	return p
}

// step is the progress function given to the trainer. It returns at once when ctx ends; the trainer then sees it too.
func (p *pacer) step(done Progress) {
	now := time.Now()
	p.debt += time.Duration(float64(now.Sub(p.since)) * p.idle)
	if p.progress != nil {
		p.progress(done)
	}
	if p.debt >= minWait {
		p.timer.Reset(p.debt)
		select {
		case <-p.timer.C:
		case <-p.ctx.Done():
		}
		p.debt -= time.Since(now)
	}
	p.since = time.Now()
}
