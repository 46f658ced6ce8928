package trainer

import (
	"context"
	"fmt"
	"time"

	"tensorturn/domain"
)

// Throttle slows a trainer to factor times its own speed: it waits after each step of Train and Evaluate, in
// proportion to the work of the step. A wait that came out too long is taken off the next one. It serves trials
// with machines of different speeds on one computer. factor is in (0, 1]; 1 gives the trainer itself.
//
// Work is the time the step took. A trainer with a method InProcess() bool that says true is not charged for time in
// which others had the processor: at a fortieth of the speed, 10 ms of it would cost 400 ms, and a slow machine would
// stagger whenever its neighbours work.
func Throttle(t Trainer, factor float64) (Trainer, error) {
	if !(factor > 0 && factor <= 1) {
		return nil, domain.Invalid("throttle trainer", fmt.Sprintf("factor %v", factor), "give a number above 0, at most 1")
	}
	if factor == 1 {
		return t, nil
	}
	slow := &throttled{Trainer: t, factor: factor}
	if p, ok := t.(interface{ InProcess() bool }); ok && p.InProcess() {
		slow.used = processorClock()
	}
	return slow, nil
}

// throttled passes everything but the paced methods on.
type throttled struct {
	Trainer
	factor float64
	used   func() time.Duration // processor time so far of who does the work, nil when it is not known
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

// Unwrap gives the trainer itself (As): saving and predicting are not slowed.
func (t *throttled) Unwrap() Trainer { return t.Trainer }

// minWait keeps timers out of a step that is shorter than they are exact; the debt adds up instead.
const minWait = time.Millisecond

// pacer waits between the steps of one call.
type pacer struct {
	ctx      context.Context
	progress func(Progress)
	factor   float64
	used     func() time.Duration
	since    time.Time     // when work went on
	before   time.Duration // used then
	debt     time.Duration // wait that is due; negative when more time has passed than was due
	timer    *time.Timer
}

func (t *throttled) pace(ctx context.Context, progress func(Progress)) *pacer {
	p := &pacer{ctx: ctx, progress: progress, factor: t.factor, used: t.used, timer: time.NewTimer(time.Hour)}
	p.timer.Stop()
	p.goOn()
	return p
}

// goOn marks the begin of a step.
func (p *pacer) goOn() {
	p.since = time.Now()
	if p.used != nil {
		p.before = p.used()
	}
}

// step is the progress function given to the trainer. It returns at once when ctx ends; the trainer then sees it too.
func (p *pacer) step(done Progress) {
	now := time.Now()
	passed := now.Sub(p.since)
	worked := passed
	if p.used != nil {
		worked = min(worked, p.used()-p.before) // more is used by other threads: the step's own, or strangers
	}
	p.debt += time.Duration(float64(worked)/p.factor) - passed
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
	p.goOn()
}
