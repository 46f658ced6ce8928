package agent

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceStart gives a clock of the time since now that also runs while the machine sleeps: a laptop that wakes up must
// know that its leases are old. Go's own clock stands still meanwhile.
func sinceStart() func() time.Duration {
	start, begin := time.Now(), bootTime()
	return func() time.Duration {
		if t := bootTime(); begin > 0 && t > 0 {
			return t - begin
		}
		return time.Since(start)
	}
}

func bootTime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
