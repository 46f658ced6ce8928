package optimizer

import (
	"math"

	"tensorturn/domain/run"
)

// Rate is the learning rate of a step that trains samples from to to of a run of total samples, by the run's sample
// clock: it does not matter who trains the step and when.
//
// During warm-up the rate grows with the clock at the step's end, so that no step has the rate zero. After it the cosine
// falls with the clock at the step's start, from peak to floor × peak at the end of the run.
func Rate(s run.Schedule, peak float64, from, to, total int64) float64 {
	warm := float64(s.WarmupFraction() * float64(total))
	if float64(to) < warm {
		return peak * float64(to) / warm
	}
	if s.Kind != run.ScheduleCosine {
		return peak
	}
	floor := s.FloorFraction()
	progress := max(0, float64(from)-warm) / max(1, float64(total)-warm)
	return peak * (floor + float64((1-floor)*(1+math.Cos(math.Pi*progress))/2))
}
