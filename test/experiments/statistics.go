package main

import (
	"fmt"
	"math"
)

// sample is one figure, once for each repetition.
type sample []float64

func (s sample) mean() float64 {
	sum := 0.0
	for _, v := range s {
		sum += v
	}
	return sum / float64(len(s))
}

// deviation is the standard deviation between repetitions (n − 1).
func (s sample) deviation() float64 {
	m, sum := s.mean(), 0.0
	for _, v := range s {
		sum += (v - m) * (v - m)
	}
	return math.Sqrt(sum / float64(len(s)-1))
}

// error is the standard error of the mean; of one repetition there is none.
func (s sample) error() float64 {
	if len(s) < 2 {
		return math.NaN()
	}
	return s.deviation() / math.Sqrt(float64(len(s)))
}

// t is Student's t of the mean against 0; for paired differences. Equal values have no deviation: ±Inf, or 0 for zeros.
func (s sample) t() float64 {
	m := s.mean()
	if m == 0 {
		return 0
	}
	return m / (s.deviation() / math.Sqrt(float64(len(s))))
}

func (s sample) least() float64 {
	v := math.Inf(1)
	for _, x := range s {
		v = min(v, x)
	}
	return v
}

func (s sample) most() float64 {
	v := math.Inf(-1)
	for _, x := range s {
		v = max(v, x)
	}
	return v
}

// above counts repetitions above a value.
func (s sample) above(v float64) (n int) {
	for _, x := range s {
		if x > v {
			n++
		}
	}
	return n
}

// minus is the paired difference.
func (s sample) minus(o sample) sample {
	d := make(sample, len(s))
	for i := range s {
		d[i] = s[i] - o[i]
	}
	return d
}

// percent and nats print figures in the table's units.
func percent(v float64) string  { return fmt.Sprintf("%.1f", 100*v) }
func points(v float64) string   { return fmt.Sprintf("%+.2f", 100*v) }
func percent2(v float64) string { return fmt.Sprintf("%.2f", 100*v) }
func nats(v float64) string     { return fmt.Sprintf("%.3f", v) }
