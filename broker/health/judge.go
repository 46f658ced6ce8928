package health

import (
	"fmt"

	"tensorturn/domain"
)

// State is what the hub can do now, in one word.
type State string

// The states. Only Ready and Low take every request that is allowed.
const (
	Starting State = "starting"  // reading its log
	Ready    State = "ready"     //
	Low      State = "low"       // no new runs; those under way go on
	Full     State = "full"      // takes no bytes; what is trained stays on the machines
	ReadOnly State = "read-only" // the log is not to be trusted
)

// DefaultMinFree is the free disk below which no new run is taken, in bytes. A run of 100 million parameters writes 1.2 GB a
// round before the collection takes the old rounds away, and an hour's orphans come on top; a gibibyte is what lets rounds
// under way end, and is little on any disk that holds models.
const DefaultMinFree = 1 << 30

// reserveOf is the part of the mark that is kept for the log alone: below it no part of a blob is taken. Events are a few
// MiB a day, the staging of a batch at most 16 MiB, and two blocks of each stream are copied when the server is recycled.
func reserveOf(minFree int64) int64 { return minFree / 4 }

// Shares of a stream of which more than lowShare of 16 parts is used leave no room for a new run; a log above fullShare of
// 32 keeps the rest for ending what has begun.
const (
	lowShare  = 15 // of 16
	fullShare = 31 // of 32
)

// Share is how much of what it may take a stream has taken.
type Share struct {
	Stream string `json:"stream"`
	Bytes  int64  `json:"bytes"`
	Limit  int64  `json:"limit" doc:"what it may take of --max-store"`
}

// look is what one look at the store has seen.
type look struct {
	free, minFree int64
	shares        []Share
	broken        string // why the store takes no writes, "" when it does
}

// judge gives the state of a store and the reason, in words that fit behind "the hub's store is low: ". slack widens the
// marks by a tenth for a store that is below one already, so that it does not flicker.
func judge(l look, before State) (State, string) {
	state, why := Ready, ""
	worse := func(s State, reason string) {
		if rank(s) > rank(state) {
			state, why = s, reason
		}
	}
	mark := func(n int64, s State) int64 {
		if rank(before) >= rank(s) {
			return n + n/10
		}
		return n
	}
	switch {
	case l.free < mark(reserveOf(l.minFree), Full):
		worse(Full, fmt.Sprintf("%s are free on its disk, %s are kept for the log", domain.FormatSize(l.free), domain.FormatSize(reserveOf(l.minFree))))
	case l.free < mark(l.minFree, Low):
		worse(Low, fmt.Sprintf("%s are free on its disk, --min-free is %s", domain.FormatSize(l.free), domain.FormatSize(l.minFree)))
	}
	for _, s := range l.shares {
		if s.Limit <= 0 {
			continue
		}
		used := fmt.Sprintf("%s of the %s that --max-store leaves for %s are used", domain.FormatSize(s.Bytes), domain.FormatSize(s.Limit), s.Stream)
		if s.Bytes >= s.Limit/16*lowShare {
			worse(Low, used)
		}
		if s.Bytes >= s.Limit/32*fullShare {
			worse(Full, used)
		}
	}
	if l.broken != "" {
		worse(Full, "it takes no writes: "+domain.Clip(l.broken, 160))
	}
	return state, why
}

func rank(s State) int {
	switch s {
	case Low:
		return 1
	case Full:
		return 2
	}
	return 0
}
