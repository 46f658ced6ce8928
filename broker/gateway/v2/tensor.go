package v2

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"tensorturn/broker/inference"
	"tensorturn/domain"
)

// datatype is one of the protocol's.
type datatype struct {
	size int // bytes of an element, 0: as long as it says
	// bits gives the value of an element's little-endian bytes.
	bits func(b []byte) (float32, bool)
	// text gives the value of a JSON number; nil: the type is not a number.
	text func(number []byte, whole bool) (float32, bool)
}

// types are what an input may be. Models take FP32. Integers and BOOL are converted when FP32 holds them exactly and are
// refused otherwise; FP64 is rounded to the nearest FP32, as the decimal text of an FP32 is, and refused where it would
// become infinite; FP16 and BF16 are exact and come as bytes alone.
var types = map[string]datatype{
	"FP32": {4, func(b []byte) (float32, bool) { return math.Float32frombits(binary.LittleEndian.Uint32(b)), true }, decimal},
	"FP64": {8, func(b []byte) (float32, bool) {
		return narrow(math.Float64frombits(binary.LittleEndian.Uint64(b)))
	}, decimal},
	"FP16": {2, func(b []byte) (float32, bool) { return half(binary.LittleEndian.Uint16(b)), true }, nil},
	"BF16": {2, func(b []byte) (float32, bool) {
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16), true
	}, nil},
	"INT8":   {1, func(b []byte) (float32, bool) { return float32(int8(b[0])), true }, signed(8)},
	"INT16":  {2, func(b []byte) (float32, bool) { return float32(int16(binary.LittleEndian.Uint16(b))), true }, signed(16)},
	"INT32":  {4, func(b []byte) (float32, bool) { return exact(int64(int32(binary.LittleEndian.Uint32(b)))) }, signed(32)},
	"INT64":  {8, func(b []byte) (float32, bool) { return exact(int64(binary.LittleEndian.Uint64(b))) }, signed(64)},
	"UINT8":  {1, func(b []byte) (float32, bool) { return float32(b[0]), true }, unsigned(8)},
	"UINT16": {2, func(b []byte) (float32, bool) { return float32(binary.LittleEndian.Uint16(b)), true }, unsigned(16)},
	"UINT32": {4, func(b []byte) (float32, bool) { return exact(int64(binary.LittleEndian.Uint32(b))) }, unsigned(32)},
	"UINT64": {8, func(b []byte) (float32, bool) { return exactUnsigned(binary.LittleEndian.Uint64(b)) }, unsigned(64)},
	"BOOL":   {1, func(b []byte) (float32, bool) { return float32(b[0]), b[0] <= 1 }, nil},
}

// decimal reads the nearest FP32. Small integers are by far the most frequent.
func decimal(number []byte, whole bool) (float32, bool) {
	if whole && len(number) <= 7 && number[0] != '-' {
		n := 0
		for _, c := range number {
			n = 10*n + int(c-'0')
		}
		return float32(n), true // below 2^24
	}
	v, err := strconv.ParseFloat(string(number), 32)
	return float32(v), err == nil
}

// narrow rounds to the nearest FP32; a finite value must stay finite. What is not finite is refused where the model is asked.
func narrow(v float64) (float32, bool) {
	n := float32(v)
	return n, !math.IsInf(float64(n), 0) || math.IsInf(v, 0)
}

func exact(v int64) (float32, bool) {
	f := float32(v)
	return f, f < 1<<63 && int64(f) == v
}

func exactUnsigned(v uint64) (float32, bool) {
	f := float32(v)
	return f, f < 1<<64 && uint64(f) == v
}

func signed(bits int) func([]byte, bool) (float32, bool) {
	return func(number []byte, whole bool) (float32, bool) {
		n, err := strconv.ParseInt(string(number), 10, bits)
		f, ok := exact(n)
		return f, whole && err == nil && ok
	}
}

func unsigned(bits int) func([]byte, bool) (float32, bool) {
	return func(number []byte, whole bool) (float32, bool) {
		n, err := strconv.ParseUint(string(number), 10, bits)
		f, ok := exactUnsigned(n)
		return f, whole && err == nil && ok
	}
}

// half is IEEE 754 binary16.
func half(h uint16) float32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch {
	case exp == 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	}
	v := float32(frac) * (1.0 / (1 << 24)) // denormal: a product of a small integer and a power of two is exact
	if sign != 0 {
		v = -v
	}
	return v
}

// rows gives the features of the one input as [rows, columns], and how many rows there are. behind is what follows the
// JSON object: exactly the bytes of the inputs that come so.
func (q *request) rows(facts *inference.Facts, behind []byte) ([]float32, int, *fail) {
	if len(q.inputs) != 1 || q.inputs[0].name != inputName {
		return nil, 0, invalid(fmt.Sprintf("the model has one input, %q; %s", inputName, named(q.inputs)))
	}
	in := &q.inputs[0]
	want := max(in.size, 0)
	if int64(len(behind)) != want {
		return nil, 0, invalid(fmt.Sprintf("%d bytes follow the JSON object, its inputs say %d", len(behind), want))
	}
	if in.asTable(facts) {
		return in.tableRows(facts, behind)
	}
	t, ok := types[in.datatype]
	if !ok {
		why := "is none of the protocol's datatypes"
		if in.datatype == textType {
			why = "does not hold numbers: the model takes them"
		}
		return nil, 0, invalid(fmt.Sprintf("input %q: %q %s", in.name, domain.Clip(in.datatype, 20), why))
	}
	n, f := in.count(facts, len(facts.Columns))
	if f != nil {
		return nil, 0, f
	}
	if f := in.holds(t, n*len(facts.Columns), behind); f != nil {
		return nil, 0, f
	}
	out := make([]float32, n*len(facts.Columns))
	gaps := facts.Form != nil && facts.Form.Fills
	if in.size >= 0 {
		f = in.fromBytes(t, behind, out)
	} else {
		f = in.fromText(t, out, gaps)
	}
	if f == nil && gaps {
		facts.Form.Fill(out)
	}
	return out, n, f
}

// holds checks that as many values can be there as the shape says, before memory is made for them: as text a value takes
// two bytes at least, with what parts it from the next.
func (in *input) holds(t datatype, values int, behind []byte) *fail {
	switch {
	case in.size >= 0 && len(behind) != values*t.size:
		return invalid(fmt.Sprintf("input %q of %d %s values has %d bytes instead of %d", in.name, values, in.datatype, len(behind), values*t.size))
	case in.size < 0 && len(in.data)-1 < 2*values:
		return invalid(fmt.Sprintf("input %q has fewer than the %d values of its shape %v", in.name, values, in.shape[:in.dims]))
	case in.size < 0 && t.text == nil && in.datatype != "BOOL":
		return invalid(fmt.Sprintf("input %q: %s comes as bytes, by the binary tensor extension", in.name, in.datatype))
	}
	return nil
}

func named(ins []input) string {
	if len(ins) == 1 {
		return fmt.Sprintf("the request has %q", ins[0].name)
	}
	return fmt.Sprintf("the request has %d", len(ins))
}

// count gives the rows that a shape says: [rows, columns], or [columns] for one. columns is the width in which they come.
func (in *input) count(facts *inference.Facts, columns int) (int, *fail) {
	shape := in.shape[:in.dims]
	wrong := func() (int, *fail) {
		return 0, invalid(fmt.Sprintf("input %q has shape %v, the model takes %s", in.name, shape, taken(facts, in.datatype)))
	}
	rows := int64(1)
	switch len(shape) {
	case 1:
	case 2:
		rows = shape[0]
	default:
		return wrong()
	}
	if shape[len(shape)-1] != int64(columns) || rows < 1 {
		return wrong()
	}
	wide := int64(len(facts.Columns))
	if rows > MaxRows || rows*wide > MaxValues {
		return 0, &fail{code: 413, why: fmt.Sprintf("input %q has %d rows, at most %d go into one request", in.name, rows, min(MaxRows, MaxValues/wide))}
	}
	return int(rows), nil
}

func (in *input) fromBytes(t datatype, b []byte, out []float32) *fail {
	for i := range out {
		v, ok := t.bits(b[i*t.size : (i+1)*t.size])
		if !ok {
			return in.inexact(i)
		}
		out[i] = v
	}
	return nil
}

func (in *input) inexact(i int) *fail {
	if in.datatype == "BOOL" {
		return invalid(fmt.Sprintf("input %q: value %d is no BOOL", in.name, i))
	}
	return invalid(fmt.Sprintf("input %q: value %d is no %s that FP32 can hold", in.name, i, in.datatype))
}
