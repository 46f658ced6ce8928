//go:build !unix

package trainer

import "time"

// processorClock gives none: what the process has used is not asked for on this system.
func processorClock() func() time.Duration { return nil }
