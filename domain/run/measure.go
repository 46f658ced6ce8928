package run

import (
	"math"

	"tensorturn/domain"
)

// What a machine may say of its own work. Its figures are summed, averaged, divided by and shown to other systems as JSON, which
// knows no infinity: one figure of 1e308 beside another would end every list that has the run, for ever, since the log keeps it.
const (
	MaxChunkSeconds = 24 * 3600.0 // a chunk takes seconds to minutes; agents say this much of one that took longer
	MaxLoss         = 1e100       // beyond the square of every float32 (1.2e77): a model that says more has no weights left
	MinSpeed        = 1e-6        // samples per second: one in eleven days
	MaxSpeed        = 1e12        // samples per second
	MaxUpload       = 24 * 3600.0 // seconds of one delta; no round would wait for it

	MaxParams = domain.MaxBlobBytes // of a model: each takes a byte of a blob at least
)

// IsLoss reports whether x can be a loss, or another unbounded figure of a model's quality.
func IsLoss(x float64) bool { return math.Abs(x) <= MaxLoss }

// IsChunkTime reports whether a chunk can have taken so many seconds.
func IsChunkTime(seconds float64) bool { return seconds >= 0 && seconds <= MaxChunkSeconds }

// KnownSpeed is the speed in samples per second, 0 (unknown) when no machine has it.
func KnownSpeed(x float64) float64 {
	if !(x >= MinSpeed && x <= MaxSpeed) {
		return 0
	}
	return x
}

// KnownUpload is the time of an upload in seconds, 0 (unknown) when nobody would have waited for it.
func KnownUpload(seconds float64) float64 {
	if !(seconds >= 0 && seconds <= MaxUpload) {
		return 0
	}
	return seconds
}
