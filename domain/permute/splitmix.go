package permute

import (
	"encoding/binary"
	"math/bits"
)

// golden is 2^64 divided by the golden ratio, made odd: SplitMix64's increment (Steele, Lea, Flood 2014, "Fast
// splittable pseudorandom number generators", figure 17).
const golden = 0x9e3779b97f4a7c15

// Source is a SplitMix64 generator: 64 bits of state, every seed is good, the same numbers on every machine and in
// every version of Go. It is for shuffles and initial weights, never for secrets. The zero value is the seed 0.
type Source struct{ state uint64 }

// NewSource gives the generator of seed, told apart by the labels: the same seed with other labels gives numbers that
// have nothing to do with the first ones. The order of the labels counts.
func NewSource(seed uint64, labels ...uint64) *Source {
	s := mix(seed)
	for _, l := range labels {
		s = mix(s + golden + mix(l))
	}
	return &Source{state: s}
}

// Uint64 is the next number, uniform over all 64-bit values.
func (s *Source) Uint64() uint64 {
	s.state += golden
	return mix(s.state)
}

// mix is SplitMix64's finaliser: a bijection in which every input bit moves about half of the output bits.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Below is uniform over 0 to n−1 without bias: it takes the high word of a 128-bit product and draws again in the few
// cases that would favour small numbers (Lemire 2019, "Fast random integer generation in an interval", algorithm 5).
// n must be positive.
func (s *Source) Below(n uint64) uint64 {
	if n == 0 {
		panic("broken promise: a bounded draw needs a positive bound")
	}
	hi, lo := bits.Mul64(s.Uint64(), n)
	if lo < n {
		for floor := -n % n; lo < floor; {
			hi, lo = bits.Mul64(s.Uint64(), n)
		}
	}
	return hi
}

// Float64 is uniform over [0, 1) in steps of 2^-53.
func (s *Source) Float64() float64 { return float64(s.Uint64()>>11) * (1.0 / (1 << 53)) }

// Fill fills b with the next numbers, little-endian: bytes that nothing on the way makes fewer.
func (s *Source) Fill(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, s.Uint64())
	}
	if len(b) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], s.Uint64())
		copy(b, last[:])
	}
}

// Shuffle puts v into a uniformly drawn order (Fisher–Yates, from the end).
func (s *Source) Shuffle(v []int) {
	for i := len(v) - 1; i > 0; i-- {
		j := s.Below(uint64(i) + 1)
		v[i], v[j] = v[j], v[i]
	}
}
