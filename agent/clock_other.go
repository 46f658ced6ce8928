//go:build !linux

package agent

import "time"

// sinceStart gives a clock of the time since now. Where Go's own clock stands still while the machine sleeps, the wall
// clock tells how long; it may be set, so the longer of the two counts.
func sinceStart() func() time.Duration {
	start := time.Now()
	wall := start.Round(0)
	return func() time.Duration {
		now := time.Now()
		return max(now.Sub(start), now.Round(0).Sub(wall))
	}
}
