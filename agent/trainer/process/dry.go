package process

import (
	"context"
	"errors"
	"time"

	"tensorturn/agent/trainer"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// contextBytes is what a program's context on a GPU takes beside what its allocator counts: code and handles of the libraries.
const contextBytes = 512 << 20

// looks is what a dry step waits for behind the first step: the look under way, and a whole one.
const looks = 2

var _ trainer.Dry = (*Trainer)(nil)

// errEnough ends a dry step.
var errEnough = errors.New("the step has been measured")

// Dry implements trainer.Dry. What the processes of the program have resident is looked at as long as it trains; of a GPU the program
// says itself what its allocator has taken.
func (t *Trainer) Dry(ctx context.Context, c domain.ChunkID, progress func(trainer.Progress)) (run.Memory, error) {
	t.dry.Store(true)
	defer t.dry.Store(false)
	within, enough := context.WithCancelCause(ctx)
	defer enough(nil)
	stepped, first := false, int64(0)
	_, err := t.Train(within, c, func(p trainer.Progress) {
		progress(p)
		if !stepped {
			stepped, first = true, t.looked.Load()
		}
		if t.looked.Load() >= first+looks {
			enough(errEnough)
		}
	})
	if err != nil && !errors.Is(context.Cause(within), errEnough) {
		return run.Memory{}, err
	}
	if err == nil { // the chunk was over first: the program waits, with all it has taken
		t.lookAgain(ctx)
	}
	m := run.Memory{Host: uint64(t.resident.Load())}
	if t.device > 0 {
		m.Device = t.device + contextBytes
	}
	return m, ctx.Err()
}

// lookAgain waits for a look at the program's processes.
func (t *Trainer) lookAgain(ctx context.Context) {
	first := t.looked.Load()
	tick := time.NewTicker(t.opener.opts.WatchEvery)
	defer tick.Stop()
	for range 2 * looks {
		select {
		case <-tick.C:
		case <-t.child.exited:
			return
		case <-ctx.Done():
			return
		}
		if t.looked.Load() >= first+looks {
			return
		}
	}
}
