//go:build shiftedclock

package main

import (
	"os"
	"strings"
	"time"
)

// wallClock is the machine's clock, shifted by the duration in the file that TENSORTURN_CLOCK names: for test/faults, which
// builds with this tag, because nothing outside of a Go program can shift its clock. Durations stay right, as they do
// on a machine whose clock is wrong.
func wallClock() time.Time {
	b, err := os.ReadFile(os.Getenv("TENSORTURN_CLOCK"))
	if err != nil {
		return time.Now()
	}
	d, err := time.ParseDuration(strings.TrimSpace(string(b)))
	if err != nil {
		return time.Now()
	}
	return time.Now().Add(d)
}
