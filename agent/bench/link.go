package bench

import (
	"context"
	"slices"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/machine"
)

// link measures round trips and both directions.
func (b *Bench) link(ctx context.Context, s *machine.Score) (err error) {
	if b.opts.Link == nil {
		return domain.Conflict("measure the link", "there is none", "")
	}
	var trips []float64
	for range linkTrips {
		began := time.Now()
		if err := within(ctx, func(ctx context.Context) error { return b.opts.Link.Trip(ctx) }); err != nil {
			return err
		}
		trips = append(trips, time.Since(began).Seconds())
	}
	slices.Sort(trips)
	s.Latency = trips[len(trips)/2]
	if s.Up, err = direction(ctx, s.Latency, b.opts.Link.Send); err != nil {
		return err
	}
	s.Down, err = direction(ctx, s.Latency, b.opts.Link.Fetch)
	return err
}

// direction gives bytes per second: a few bytes say how many more fill the time, so that a slow link is not held for minutes. The round
// trip of a request is no time in which bytes move, and is taken off as far as it is the smaller part.
func direction(ctx context.Context, trip float64, move func(context.Context, int) error) (rate float64, err error) {
	size := linkFirst
	for end := time.Now().Add(linkTime); ; {
		began := time.Now()
		if err := within(ctx, func(ctx context.Context) error { return move(ctx, size) }); err != nil {
			return 0, err
		}
		took := time.Since(began).Seconds()
		rate = max(rate, float64(size)/max(took-trip, took/2))
		left := time.Until(end)
		if left < linkTime/8 {
			return rate, nil
		}
		next := min(rate*left.Seconds()/2, linkMost)
		if next < linkFirst {
			return rate, nil // what is left of the time is too short for more than the first bytes
		}
		size = int(next)
	}
}

// within gives f a limit; running into it is a failure that may pass.
func within(ctx context.Context, f func(context.Context) error) error {
	short, cancel := context.WithTimeout(ctx, linkLimit)
	defer cancel()
	err := f(short)
	if err != nil && ctx.Err() == nil && short.Err() != nil {
		return domain.Unavailable("measure the link", "a request took longer than "+linkLimit.String(), "", nil)
	}
	return err
}
