// Package splitmix is the one pseudo-random generator of runs: SplitMix64 by Steele, Lea and Flood ("Fast splittable
// pseudorandom number generators", OOPSLA 2014). Its numbers depend on the seed alone, for ever: not on the Go
// version, the platform or anything that happened before.
//
// It serves shuffles, splits and initial weights. It is no source of secrets.
package splitmix

import "math/bits"

const golden = 0x9e3779b97f4a7c15

// Source is a stream of numbers. Its zero value is the stream of seed 0.
type Source struct{ state uint64 }

// New gives the stream of a seed. Streams of one seed with different tags are unrelated, so that for example the split
// of a data set and the order of its epochs may share the run's seed.
func New(seed uint64, tags ...uint64) *Source {
	s := mix(seed)
	for _, t := range tags {
		s = mix(s + golden*(t+1))
	}
	if len(tags) == 0 {
		s = seed
	}
	return &Source{state: s}
}

// Uint64 is the next number.
func (s *Source) Uint64() uint64 {
	s.state += golden
	return mix(s.state)
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Below draws from [0, n) without bias (Lemire, "Fast random integer generation in an interval", 2019). n must be
// positive.
func (s *Source) Below(n uint64) uint64 {
	hi, lo := bits.Mul64(s.Uint64(), n)
	if lo < n {
		for threshold := -n % n; lo < threshold; {
			hi, lo = bits.Mul64(s.Uint64(), n)
		}
	}
	return hi
}

// Float64 draws from [0, 1) in steps of 2^-53.
func (s *Source) Float64() float64 { return float64(s.Uint64()>>11) * 0x1p-53 }

// Shuffle orders a slice at random (Fisher and Yates, from the end).
func Shuffle[T any](s *Source, list []T) {
	for i := len(list) - 1; i > 0; i-- {
		j := s.Below(uint64(i) + 1)
		list[i], list[j] = list[j], list[i]
	}
}
