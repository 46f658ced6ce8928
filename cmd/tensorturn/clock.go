//go:build !shiftedclock

package main

import "time"

// wallClock is the machine's clock.
func wallClock() time.Time { return time.Now() }
