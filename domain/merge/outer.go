package merge

import (
	"encoding/binary"
	"math"
)

// readMomentum fills the momentum tile: zeros in the first round.
func (m *merger) readMomentum(n int) error {
	if m.momentum == nil {
		return nil // the tile is as it was made, and step does not write to it
	}
	raw, err := m.momentum.read(8 * n)
	if err != nil {
		return err
	}
	tile := m.m[:n]
	for j := range tile {
		tile[j] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*j:]))
	}
	return nil
}

// step turns the tile's weighted sums into the next base and momentum, as bytes in out and mem. It gives the index of
// the first value that is not finite, -1 when all are.
//
// Every product stands in a conversion: the language allows a compiler to fuse x*y + z into one rounding, and those for
// arm64 and GOAMD64=v3 do; float64(x*y) forbids it.
func (m *merger) step(n int) (bad int) {
	eta, mu, total := m.job.Eta, m.job.Mu, m.total
	keep := 1 - eta
	theta, sum, mom := m.theta[:n], m.mean[:n], m.m[:n]
	out, mem := m.out[:4*n], m.mem[:8*n]
	norm := m.sum
	bad = -1
	for j := range theta {
		l := sum[j] / total
		d := theta[j] - l
		next := float64(mu*mom[j]) + d
		t := float64(keep*theta[j]) + float64(eta*l) - float64(eta*float64(mu*next))
		rounded := float32(t)
		if bad < 0 && (math.Float32bits(rounded)&0x7f800000 == 0x7f800000 || math.Float64bits(next)&(0x7ff<<52) == 0x7ff<<52) {
			bad = j
		}
		binary.LittleEndian.PutUint32(out[4*j:], math.Float32bits(rounded))
		binary.LittleEndian.PutUint64(mem[8*j:], math.Float64bits(next))
		moved := float64(rounded) - theta[j]
		norm += float64(moved * moved)
	}
	m.sum = norm
	return bad
}

// average is step for a statistic: the next base is the mean of the values, without momentum. It counts for no norm.
func (m *merger) average(n int) (bad int) {
	sum, out := m.mean[:n], m.out[:4*n]
	clear(m.mem[:8*n])
	bad = -1
	for j := range sum {
		rounded := float32(sum[j] / m.total)
		if bad < 0 && math.Float32bits(rounded)&0x7f800000 == 0x7f800000 {
			bad = j
		}
		binary.LittleEndian.PutUint32(out[4*j:], math.Float32bits(rounded))
	}
	return bad
}
