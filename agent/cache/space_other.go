//go:build !linux && !darwin

package cache

import "math"

// freeSpace knows nothing here: a full disk is then noticed by the write that fails.
func freeSpace(string) (uint64, error) { return math.MaxInt64, nil }
