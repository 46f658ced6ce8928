//go:build unix

package trainer

import (
	"syscall"
	"time"
)

// processorClock gives a clock of what this process has used of all processors.
func processorClock() func() time.Duration {
	return func() time.Duration {
		var r syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r) // cannot fail with these arguments
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
}
