package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker/wire"
	"tensorturn/domain/machine"
)

// Pauses of benchmarks.
const (
	benchRest  = 3 * time.Second // without work until one begins: a run that is about to place its next lease comes first
	benchAgain = time.Minute     // after a failure, as when the hub lets other machines measure their links
)

// bencher takes the benchmark that the hub wants while no slot has work, and stops it as soon as one gets some. One goroutine measures;
// the talker tells it what the hub says and takes the result along.
type bencher struct {
	measure func(context.Context) (machine.Score, error)
	hint    func() // there is news for the hub
	log     zerolog.Logger
	news    chan struct{} // holds one token: wanted or busy has changed

	mu     sync.Mutex
	wanted int  // number, 0 for none
	busy   bool // a slot has work
	done   *wire.Bench
	failed string             // why the wanted one could not be taken, empty before the first try
	stop   context.CancelFunc // of the one under way
}

func newBencher(measure func(context.Context) (machine.Score, error), hint func(), log zerolog.Logger) *bencher {
	return &bencher{measure: measure, hint: hint, log: log, news: make(chan struct{}, 1)}
}

// hear takes the hub's word. It does not wait.
func (b *bencher) hear(r *wire.SyncReply) {
	b.mu.Lock()
	defer b.mu.Unlock()
	busy := slices.ContainsFunc(r.Slots, func(d wire.SlotDesire) bool { return d.Run != "" })
	if busy == b.busy && r.Bench == b.wanted {
		return
	}
	if (busy || r.Bench != b.wanted) && b.stop != nil {
		b.stop()
	}
	if r.Bench != b.wanted {
		b.failed = ""
	}
	b.busy, b.wanted = busy, r.Bench
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// result is what the hub does not know yet, nil for nothing.
func (b *bencher) result() *wire.Bench {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done != nil && b.done.Number == b.wanted {
		return b.done
	}
	return nil
}

// waits is why the wanted benchmark could not be taken yet, for people; empty for nothing.
func (b *bencher) waits() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

// due reports whether a benchmark shall be taken now, and which.
func (b *bencher) due() (number int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wanted, b.wanted > 0 && !b.busy && (b.done == nil || b.done.Number != b.wanted)
}

// run measures until ctx ends.
func (b *bencher) run(ctx context.Context) {
	pause := benchRest
	for {
		_, due := b.due()
		var rested <-chan time.Time
		var timer *time.Timer
		if due {
			timer = time.NewTimer(pause)
			rested = timer.C
		}
		select {
		case <-ctx.Done():
		case <-b.news:
		case <-rested:
			pause = b.take(ctx)
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// take measures once and gives the pause until the next time.
func (b *bencher) take(ctx context.Context) time.Duration {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.mu.Lock()
	number := b.wanted
	if b.busy || number == 0 {
		b.mu.Unlock()
		return benchRest
	}
	b.stop = cancel
	b.mu.Unlock()
	score, err := b.measure(ctx)
	b.mu.Lock()
	b.stop = nil
	switch {
	case err == nil:
		b.done, b.failed = &wire.Bench{Number: number, Score: score}, ""
	case ctx.Err() == nil && number == b.wanted:
		b.failed = reason(err.Error())
	}
	b.mu.Unlock()
	switch {
	case err == nil:
		b.log.Info().Int("number", number).Float64("seconds", score.Seconds).Msg("measured this machine")
		b.hint()
	case ctx.Err() != nil:
		b.log.Debug().Msg("measuring stopped for work, goes on later")
	default:
		b.log.Warn().Err(err).Msg("this machine could not be measured, tried again")
		b.hint()
		return benchAgain
	}
	return benchRest
}
