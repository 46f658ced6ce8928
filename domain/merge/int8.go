package merge

import (
	"encoding/binary"
	"math"
)

// int8: a byte a value in two's complement, q = round(x/scale·127) with scale the largest magnitude of the block; ties go
// to the even q, and q decodes as q·scale/127: one exact product and one correctly rounded quotient in float64. −128 is
// never written and never accepted. Zeros stay zeros and the largest magnitude keeps its value.
//
// Comparing in float64 decides as comparing exactly would: for significands X and A of 24 bits, 254·X and (2k+1)·A·2^e are
// whole numbers, so that what is no tie is at least 2^(−32) of itself away from one, far more than the quotient's rounding.
const int8Top = 127

// roundEven is 1.5·2^52: adding and taking it away again rounds a small float64 to the nearest whole number, ties to even.
const roundEven = 6755399441055744.0

// encodeInt8 codes one block.
func encodeInt8(dst []byte, d []float32) {
	top := largest(d)
	binary.LittleEndian.PutUint32(dst, top)
	code := dst[scaleBytes:][:len(d)]
	if top == 0 {
		clear(code)
		return
	}
	scale := float64(math.Float32frombits(top))
	for i, x := range d {
		v := float64(float64(x)*int8Top) / scale
		code[i] = byte(int8((v + roundEven) - roundEven))
	}
}

// decodeInt8 gives the values of one block.
func decodeInt8(d []float64, code []byte, scale float32) {
	s := float64(scale)
	code = code[:len(d)]
	for i := range d {
		d[i] = float64(float64(int8(code[i]))*s) / int8Top
	}
}
