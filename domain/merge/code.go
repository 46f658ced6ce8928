package merge

import (
	"encoding/binary"
	"math"
)

// A coded tensor is a row of blocks of BlockValues values: a float32 scale, little-endian, and the values' codes, the
// first value in the lowest bits of a byte. The last block of a tensor may be short; unused bits are zero. What a code
// means is the codec's: e3m0.go, int8.go, twobit.go.
const (
	BlockValues = 256
	scaleBytes  = 4
)

// bitsOf is how many bits a value takes beside its share of the scale.
func bitsOf(c Codec) int64 {
	switch c {
	case CodecInt8:
		return 8
	case CodecE3M0:
		return 4
	case CodecTwoBit:
		return 2
	}
	return 32
}

// BitsPerValue is the formula that a codec's size on the wire is held against: bits a parameter, scales included, whole
// blocks (algorithms: 8.125, 4.125 and 2.125; 32 for fp32).
func BitsPerValue(c Codec) float64 {
	if c == CodecFP32 {
		return 32
	}
	return float64(bitsOf(c)) + 8*float64(scaleBytes)/BlockValues
}

// Known reports whether there is such a codec.
func (c Codec) Known() bool {
	switch c {
	case CodecFP32, CodecInt8, CodecE3M0, CodecTwoBit:
		return true
	}
	return false
}

// blockBytesOf is the length of a whole block.
func blockBytesOf(c Codec) int { return scaleBytes + int(BlockValues*bitsOf(c)/8) }

// codeBytes is the length of n values of one tensor.
func codeBytes(c Codec, n int64) int64 {
	b := n / BlockValues * int64(blockBytesOf(c))
	if rest := n % BlockValues; rest > 0 {
		b += scaleBytes + (rest*bitsOf(c)+7)/8
	}
	return b
}

// encodeCode writes at most BlockValues finite values to dst, which has codeBytes(c, len(d)) bytes.
func encodeCode(c Codec, dst []byte, d []float32) {
	switch c {
	case CodecInt8:
		encodeInt8(dst, d)
	case CodecTwoBit:
		encodeTwoBit(dst, d)
	default:
		encodeBlock(dst, d)
	}
}

// decodeCode gives the values of one block.
func decodeCode(c Codec, d []float64, block []byte) {
	scale, _, _ := scaleOf(block)
	switch c {
	case CodecInt8:
		decodeInt8(d, block[scaleBytes:], scale)
	case CodecTwoBit:
		decodeTwoBit(d, block[scaleBytes:], scale)
	default:
		table := levels(scale)
		decodeBlock(d, block, &table)
	}
}

// encodeTile codes a tile and gives in q what a reader will decode.
func encodeTile(c Codec, code []byte, d []float32, q []float64) {
	size := blockBytesOf(c)
	for i := 0; i < len(d); i += BlockValues {
		block := d[i:min(i+BlockValues, len(d))]
		dst := code[i/BlockValues*size:][:codeBytes(c, int64(len(block)))]
		encodeCode(c, dst, block)
		decodeCode(c, q[i:][:len(block)], dst)
	}
}

// scaleOf reads a block's scale and reports whether it is finite and not negative.
func scaleOf(block []byte) (scale float32, finite, plain bool) {
	bits := binary.LittleEndian.Uint32(block)
	return math.Float32frombits(bits), bits&0x7f800000 != 0x7f800000, bits>>31 == 0
}

// largest is the bits of the largest magnitude: magnitudes of one sign are ordered as their bits.
func largest(d []float32) (top uint32) {
	for _, x := range d {
		top = max(top, math.Float32bits(x)&0x7fffffff)
	}
	return top
}
