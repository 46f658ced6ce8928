package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"tensorturn/domain"
)

// The width follows the link: it grows while more parts in flight bring more, shrinks when they bring less, and halves
// on an error. The link here carries at most four parts' worth.
func TestFlowAdapts(t *testing.T) {
	var now time.Duration
	f := newFlow(func() time.Duration { return now })
	window := func(throughput float64) {
		for range f.width { // as many parts as are in flight
			now += time.Duration(1000 / throughput * float64(time.Second))
			f.done(1000, nil)
		}
	}
	for range 20 {
		window(100 * float64(min(f.width, 4)))
	}
	if f.width < 4 || f.width > 6 {
		t.Errorf("width %d on a link for four", f.width)
	}
	for range 20 {
		window(100 * float64(f.width))
	}
	if f.width != MaxWidth {
		t.Errorf("width %d on a wide link, want %d", f.width, MaxWidth)
	}
	f.done(0, errors.New("cut"))
	if f.width != MaxWidth/2 {
		t.Errorf("width %d after an error", f.width)
	}
	for range 10 {
		f.done(0, errors.New("cut"))
	}
	if f.width != 1 {
		t.Errorf("width %d after many errors", f.width)
	}
}

// Never more parts in flight than the width, over all callers; what is refused is not tried again; the rest is ended.
func TestFlowEach(t *testing.T) {
	f := newFlow(sinceStart())
	f.pause = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	var flying, most, tries atomic.Int64
	err := f.each(t.Context(), 50, func(ctx context.Context, i int) (int64, error) {
		n := flying.Add(1)
		defer flying.Add(-1)
		for {
			m := most.Load()
			if n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		return 10, nil
	})
	if err != nil || most.Load() > MaxWidth {
		t.Errorf("%v, %d in flight", err, most.Load())
	}
	denied := domain.Denied("put", "revoked", "")
	if err := f.each(t.Context(), 5, func(context.Context, int) (int64, error) { tries.Add(1); return 0, denied }); !errors.Is(err, denied) {
		t.Errorf("got %v", err)
	}
	if tries.Load() > 5 {
		t.Errorf("%d tries of a refusal", tries.Load())
	}
	tries.Store(0)
	cut := errors.New("cut")
	if err := f.each(t.Context(), 1, func(context.Context, int) (int64, error) { tries.Add(1); return 0, cut }); !errors.Is(err, cut) || tries.Load() != partTries {
		t.Errorf("%v after %d tries, want %d", err, tries.Load(), partTries)
	}
	if f.busy != 0 {
		t.Errorf("%d parts are still counted as in flight", f.busy)
	}
}
