package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"tensorturn/domain"
)

// Pacing of part transfers.
const (
	MaxWidth    = 8 // parts in flight; beyond it home links only queue
	startWidth  = 2
	partTries   = 5                      // of one part in one effect; the effect itself is tried again by Core
	partFirst   = 500 * time.Millisecond // back-off between them, doubled, with full jitter
	partLongest = 10 * time.Second
	grewEnough  = 1.1 // a part more in flight must bring a tenth more throughput
)

// flow moves parts several at once and adapts their number to the link: one more while throughput grows, one fewer
// when it shrinks, half on an error. One flow per direction is shared by all slots, since they share the link.
type flow struct {
	clock func() time.Duration
	pause func(ctx context.Context, d time.Duration) error // waits between tries; tests do not

	mu    sync.Mutex
	width int
	busy  int // parts in flight, over all callers
	freed chan struct{}
	rate  float64 // bytes per second of the last window
	since time.Duration
	bytes int64
	parts int
}

func newFlow(clock func() time.Duration) *flow {
	return &flow{clock: clock, pause: sleep, width: startWidth, freed: make(chan struct{}), since: clock()}
}

// each runs move for 0..n−1, each until it succeeds or fails for good, and returns the first failure after all have
// ended. move returns the bytes it moved.
func (f *flow) each(ctx context.Context, n int, move func(ctx context.Context, i int) (int64, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range n {
		if f.enter(ctx) != nil {
			break
		}
		wg.Go(func() {
			defer f.leave()
			if err := f.persist(ctx, i, move); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// persist tries one part until it is moved, for at most partTries times.
func (f *flow) persist(ctx context.Context, i int, move func(context.Context, int) (int64, error)) error {
	for try := 1; ; try++ {
		n, err := move(ctx, i)
		f.done(n, err)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case final(err):
			return err
		case try == partTries:
			return fmt.Errorf("%w (tried %d times)", err, try)
		}
		wait := min(partFirst<<(try-1), partLongest)
		if err := f.pause(ctx, rand.N(wait)); err != nil {
			return context.Cause(ctx)
		}
	}
}

// final reports whether trying again at once is pointless: the hub has refused, or this machine's disk has.
func final(err error) bool {
	var disk *transferFailure
	if errors.As(err, &disk) {
		return true
	}
	switch domain.KindOf(err) {
	case domain.KindInvalid, domain.KindDenied, domain.KindNotFound:
		return true
	}
	return false
}

// enter waits until fewer parts than the width are in flight, or ctx ends.
func (f *flow) enter(ctx context.Context) error {
	for ctx.Err() == nil {
		f.mu.Lock()
		if f.busy < f.width {
			f.busy++
			f.mu.Unlock()
			return nil
		}
		freed := f.freed
		f.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

func (f *flow) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy--
	close(f.freed) // all look again: the width may have changed too
	f.freed = make(chan struct{})
}

// done takes a finished try into account. A window is as many parts as are in flight.
func (f *flow) done(bytes int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock()
	if err != nil {
		f.width = max(1, f.width/2)
		f.rate, f.since, f.bytes, f.parts = 0, now, 0, 0
		return
	}
	f.bytes += bytes
	f.parts++
	if f.parts < f.width || now <= f.since {
		return
	}
	rate := float64(f.bytes) / (now - f.since).Seconds()
	switch {
	case rate > f.rate*grewEnough:
		f.width = min(MaxWidth, f.width+1)
	case rate*grewEnough < f.rate:
		f.width = max(1, f.width-1)
	}
	f.rate, f.since, f.bytes, f.parts = rate, now, 0, 0
}

// sleep waits, or returns ctx's error.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
