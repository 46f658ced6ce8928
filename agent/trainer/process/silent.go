package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"tensorturn/domain/run"
)

// A member whose spec names no output is started like a program that speaks, and shows by itself what it is: it says hello,
// or it ends with exit code 0 and has left weights in its output folder. Until then it is undecided, and after a first wait
// silent: the agent goes on to Train, where its prints and its computing are signs of life.

// undecided reports whether the program may turn out to be either.
func (t *Trainer) undecided() bool {
	return t.job.Member > 0 && t.job.Spec.Output == "" && !t.job.Serve
}

// output is the name of the file that a program alone writes.
func (t *Trainer) output() string {
	if t.job.Spec.Output != "" {
		return t.job.Spec.Output
	}
	return run.DefaultOutput
}

// meet waits for the hello of an undecided program or its end, at most for wait (0: as long as ctx lasts). Past it the
// program is silent.
func (t *Trainer) meet(ctx context.Context, wait time.Duration) error {
	var late <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		late = timer.C
	}
	t.silent = false
	select {
	case <-t.channel.spoke:
		return t.greet(ctx)
	case <-t.child.exited:
		return t.over(ctx)
	case <-late:
		t.silent = true
		return nil
	case <-ctx.Done():
		t.broken = ctx.Err()
		return t.broken
	}
}

// meetAgain waits longer for a silent program whose weights are trained already. One that still says nothing trains alone:
// it is ended, its work is not needed.
func (t *Trainer) meetAgain(ctx context.Context) error {
	err := t.meet(ctx, patience*t.opener.opts.HelloWait)
	if err != nil || !t.silent {
		return err
	}
	t.silent, t.solo = false, true
	return t.endProgram(0)
}

// over judges an undecided program that has ended: it had spoken, failed, or trained alone.
func (t *Trainer) over(ctx context.Context) error {
	t.silent = false
	t.channel.settle(drainTime)
	if t.channel.claimed.Load() {
		return t.greet(ctx)
	}
	if !t.succeeded() {
		return t.failed(t.ended())
	}
	t.solo = true
	if t.wroteNothing() {
		return t.failed(fail(KindOutput, "the script ended without tensorturn.join, and there is no "+run.DefaultOutput+" in TENSORTURN_OUTPUT_DIR",
			"join the run, write the weights there as safetensors, or name another file with output in the spec"))
	}
	return t.takeOutput()
}

// succeeded reports whether the ended program did so by itself with exit code 0.
func (t *Trainer) succeeded() bool {
	return t.child.verdict.Load() == nil && t.child.state != nil && t.child.state.Success()
}

// wroteNothing reports whether no output can be found.
func (t *Trainer) wroteNothing() bool {
	_, err := os.Lstat(filepath.Join(t.place.output, t.output()))
	if t.packed || !errors.Is(err, os.ErrNotExist) {
		return errors.Is(err, os.ErrNotExist)
	}
	_, err = os.Lstat(filepath.Join(t.place.input, t.output()))
	return errors.Is(err, os.ErrNotExist)
}
