package merge

import (
	"encoding/binary"
	"math"
)

// 2-bit: the scale m is the mean magnitude of the block; bit 1 of a code is the sign and bit 0 says whether the magnitude
// is at least m. It decodes as 1.5·m or 0.5·m, both exact in float64. There is no code for zero: alone it bends a delta
// by two thirds of its length, which is why its makers keep what it loses and add it to their next delta (feedback.go).
// The mean is a float64 sum in order, rounded once to float32; where it rounds to zero the whole block is zeros.

// encodeTwoBit codes one block.
func encodeTwoBit(dst []byte, d []float32) {
	sum := 0.0
	for _, x := range d {
		sum += float64(math.Float32frombits(math.Float32bits(x) & 0x7fffffff))
	}
	mean := math.Float32bits(float32(sum / float64(len(d))))
	binary.LittleEndian.PutUint32(dst, mean)
	code := dst[scaleBytes:][:(len(d)+3)/4]
	clear(code)
	if mean == 0 {
		return
	}
	for i, x := range d {
		bits := math.Float32bits(x)
		c := byte(0)
		if bits&0x7fffffff >= mean {
			c = 1
		}
		if bits>>31 == 1 && bits<<1 != 0 { // no sign for a zero
			c |= 2
		}
		code[i/4] |= c << (2 * (i % 4))
	}
}

// decodeTwoBit gives the values of one block.
func decodeTwoBit(d []float64, code []byte, scale float32) {
	m := float64(scale)
	low, high := float64(m*0.5), float64(m*1.5)
	table := [4]float64{low, high, -low, -high}
	for i := range d {
		d[i] = table[code[i/4]>>(2*(i%4))&3]
	}
}
