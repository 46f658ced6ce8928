package hub

import (
	"context"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// Limits of the hub. Each is written once and tested at the limit.
const (
	MaxLiveRuns   = 256                    // runs that have not ended; more on one owner's pool is a loop in somebody's script
	MaxInputs     = 256                    // inputs of one Step: what a synced append of a few milliseconds should carry
	MaxTargets    = 16                     // targets of one Do
	maxCommandID  = domain.MaxIDLength - 4 // of a Do: parts of a large group add a suffix to it
	maxPlanPasses = 64                     // rounds of planning in one Step; a planner that does not converge must not stop the hub
	maxCauses     = 1 << 16
	maxRetired    = 8  // earlier incarnations of a machine that are still recognised as such
	maxWorked     = 32 // runs remembered per machine, newest last, for which it may hold deltas
)

// Retry pacing of jobs and of a log that cannot be written.
const (
	retryFirst   = time.Second
	retryLongest = time.Minute
	reopenFirst  = 250 * time.Millisecond
	reopenMost   = 10 * time.Second
)

// preparingLeases is how many lease times a slot may prepare (fetch data, compile) without visible progress.
const preparingLeases = 10

// Config is what Core needs to know.
type Config struct {
	Timing domain.Timing
	// Process tells this hub process from its predecessors: command ids contain it, so that a record of an earlier
	// process is never taken for one's own. Drawn at the edge; any id.
	Process string
	// Known is a position of the log that was kept outside of it, zero for none: Open demands it. A store that was cut
	// short, or rewritten below it, is damage and not a shorter log.
	Known Position
	// Base, if set, gives a fold to begin from instead of the log's first record, nil for none. Core asks at Open and
	// at each rebuild, and takes it only where the log still has the record it was made at.
	Base func(context.Context) *Base
	// Decide decides the commands of runs, run.Decide when nil. The simulator puts rules with planted defects here, to see
	// that they are found; nothing else sets it.
	Decide func(*run.State, run.Command) ([]event.Data, error)
	// Replayed, if set, is given every event of the log by Open, in order and in lists of at most
	// domain.MaxBatchEvents: projections start from it and go on with Committed.
	Replayed func([]event.Envelope)
}

// Position is a record's place in the log with its digest.
type Position struct {
	Seq    uint64
	Digest domain.Digest
}

// backoff doubles from first with the attempts made so far, up to most.
func backoff(attempts int, first, most time.Duration) time.Duration {
	d := first
	for range attempts {
		d *= 2
		if d >= most {
			return most
		}
	}
	return d
}
