package merge

import (
	"encoding/binary"
	"math"
)

// E3M0 (Streaming DiLoCo, arXiv 2501.18512, names the format; block and scale are ours): the scale is the largest
// magnitude of the block, a value one nibble, the first value in the low half. Bit 3 of a nibble is the sign, bits 0 to 2 the level: level 0 is zero, level L from 1 to 7 is
// scale·2^(L−7). The last block of a tensor may be short; an unused half byte is zero. Zeros stay zeros exactly.
const (
	blockBytes = scaleBytes + BlockValues/2
	topLevel   = 7
)

// sqrtHalf is 2^(−1/2): scale·sqrtHalf is the boundary between the levels 6 and 7 on a logarithmic scale, and the other
// boundaries are exact halves of it. Comparing in float64 decides as comparing exactly would: for significands X and A
// of 24 bits, 2X² and A²·4^k are whole numbers that are never equal, so a value is at least 2^(−49) of itself away from
// a true boundary, eight times what rounding the constant and the product can move it. There are no ties.
const sqrtHalf = 0.70710678118654752440084436210484903928483593768847

// encodeBlock writes at most BlockValues finite values to dst, which has codeBytes(CodecE3M0, len(d)) bytes.
func encodeBlock(dst []byte, d []float32) {
	top := largest(d)
	binary.LittleEndian.PutUint32(dst, top)
	code := dst[scaleBytes:][:(len(d)+1)/2]
	if top == 0 {
		clear(code)
		return
	}
	bound := int64(math.Float64bits(float64(float64(math.Float32frombits(top)) * sqrtHalf)))
	for i := range code[:len(d)/2] {
		pair := d[2*i : 2*i+2 : 2*i+2]
		code[i] = nibble(pair[0], bound) | nibble(pair[1], bound)<<4
	}
	if len(d)%2 == 1 {
		code[len(code)-1] = nibble(d[len(d)-1], bound)
	}
}

// nibble codes one value of a block that is not all zeros. bound holds the float64 bits of the boundary below level 7.
// Each level down halves the boundary, which takes 1<<52 from its bits; a float32 is never denormal as a float64, so
// bits compare as values do, and the number of halvings until the value is reached is one shift. No branch: the values
// of a delta are as random as can be.
func nibble(x float32, bound int64) byte {
	bits := math.Float32bits(x)
	magnitude := int64(math.Float64bits(float64(math.Float32frombits(bits & 0x7fffffff))))
	halvings := (bound - magnitude + 1<<52 - 1) >> 52 // about a thousand for a zero
	level := max(topLevel-halvings, 0)
	sign := int64(bits>>28) & 8 & (-level >> 63) // none for level 0
	return byte(level | sign)
}

// levels gives the value of each nibble for a scale. All are exact in float64, for denormal scales too. A negative zero
// (nibble 8) is never written and reads as zero.
func levels(scale float32) (table [16]float64) {
	v := float64(scale)
	for l := topLevel; l > 0; l-- {
		table[l], table[l|8] = v, -v
		v = float64(v * 0.5)
	}
	return table
}

// decodeBlock gives the values of one block.
func decodeBlock(d []float64, block []byte, table *[16]float64) {
	code := block[scaleBytes:]
	for i := range len(d) / 2 {
		c := code[i]
		d[2*i], d[2*i+1] = table[c&15], table[c>>4]
	}
	if n := len(d); n%2 == 1 {
		d[n-1] = table[code[n/2]&15]
	}
}
