package v2

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/pool"
)

// Pacing and limits of usage digests.
const (
	usageEvery  = 10 * time.Second // between looks for minutes that have passed
	usageWait   = 10 * time.Second // for the hub to record them; at Stop too
	maxUnsaid   = 8 * pool.MaxKeys // digests that the hub has not taken; beyond it the newest are dropped, and said so
	usageMinute = time.Minute
)

// usage counts what each key asked of each version in each minute, and has each minute that has passed recorded. A hub that
// dies loses what was counted in its last minute; one that cannot write is asked again.
type usage struct {
	cfg Config

	mu     sync.Mutex
	counts map[usageKey]*tally
	lost   int64

	done    chan struct{}
	running sync.WaitGroup
}

type usageKey struct {
	key     domain.KeyID
	model   domain.ModelID
	version int
	run     domain.RunID
	minute  int64 // unix minutes
}

type tally struct{ requests, rows, errors int64 }

func newUsage(cfg Config) *usage {
	return &usage{cfg: cfg, counts: map[usageKey]*tally{}, done: make(chan struct{})}
}

// add counts one request.
func (u *usage) add(now time.Time, t target, rows, code int) {
	k := usageKey{t.caller.Key, t.model.Name, t.version.Version, t.version.Run, now.Unix() / 60}
	u.mu.Lock()
	defer u.mu.Unlock()
	n := u.counts[k]
	if n == nil {
		if len(u.counts) >= maxUnsaid {
			u.lost++
			return
		}
		n = &tally{}
		u.counts[k] = n
	}
	n.requests++
	n.rows += int64(rows)
	if code >= 400 {
		n.errors++
	}
}

func (u *usage) start() {
	every := u.cfg.Every
	if every == 0 {
		every = usageEvery
	}
	u.running.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				u.record(u.cfg.Now().Unix() / 60)
			case <-u.done:
				return
			}
		}
	})
}

// stop records the present minute too: what comes in it after a restart is another digest of the same minute.
func (u *usage) stop() {
	close(u.done)
	u.running.Wait()
	u.record(math.MaxInt64)
}

// record has the minutes before the given one recorded. What the hub does not take stays for the next look; should it have
// taken it although it said otherwise, that minute counts twice: usage is not money.
func (u *usage) record(before int64) {
	u.mu.Lock()
	var counts []pool.InferenceCounted
	for k, n := range u.counts {
		if k.minute < before {
			counts = append(counts, pool.InferenceCounted{Key: k.key, Model: k.model, Version: k.version, Run: k.run, Minute: k.minute * usageMinute.Microseconds(),
				Requests: n.requests, Rows: n.rows, Errors: n.errors})
		}
	}
	lost := u.lost
	u.lost = 0
	u.mu.Unlock()
	if lost > 0 {
		u.cfg.Logger.Error().Int64("requests", lost).Msg("usage not counted: the hub records none")
	}
	slices.SortFunc(counts, func(a, b pool.InferenceCounted) int {
		return cmp.Or(cmp.Compare(a.Minute, b.Minute), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Version, b.Version))
	})
	for part := range slices.Chunk(counts, pool.MaxCounts) {
		ctx, cancel := context.WithTimeout(context.Background(), usageWait)
		err := u.cfg.Record(ctx, part)
		cancel()
		if err != nil {
			u.cfg.Logger.Warn().Err(err).Msg("usage not recorded")
			return
		}
		u.forget(part)
	}
}

// forget takes off what is recorded; a request of the last moment may have come since.
func (u *usage) forget(part []pool.InferenceCounted) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range part {
		k := usageKey{c.Key, c.Model, c.Version, c.Run, c.Minute / usageMinute.Microseconds()}
		n := u.counts[k]
		n.requests -= c.Requests
		n.rows -= c.Rows
		n.errors -= c.Errors
		if n.requests == 0 {
			delete(u.counts, k)
		}
	}
}
