// Package safetensors reads and writes the safetensors format: 8 bytes of header length, a JSON header, raw
// little-endian data. Reader and writer are streaming, strict and bounded, because the bytes are foreign: no duplicate
// name or key, no hole or overlap, no overflow in a shape, at most MaxHeaderBytes of header and MaxTensors tensors.
//
// Canonical order, which tensorturn's own files have and its merge relies on, is ascending by name; files of others may
// have any order. Names may hold any UTF-8: whoever makes a path of one checks it. It never looks at values; gates do.
// Trainers, domain/merge, the model export and their checks call it.
//
// Source: the format's description in huggingface/safetensors.
package safetensors

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"tensorturn/domain"
)

// DType is a tensor's element type by its safetensors name.
type DType string

// The element types.
const (
	F64  DType = "F64"
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
	I64  DType = "I64"
	I32  DType = "I32"
	I16  DType = "I16"
	I8   DType = "I8"
	U64  DType = "U64"
	U32  DType = "U32"
	U16  DType = "U16"
	U8   DType = "U8"
	Bool DType = "BOOL"
)

// Limits of a file from others.
const (
	MaxHeaderBytes = 8 << 20
	MaxTensors     = 100_000
	MaxTensorName  = 512  // bytes
	MaxDims        = 16   // far above what any framework makes
	MaxMetadata    = 4096 // keys; each costs a map entry, and 8 MiB of short ones would cost 100 MiB
)

// Tensor describes one tensor of a file.
type Tensor struct {
	Name  string
	DType DType
	Shape []int64 // row-major, empty for a scalar
}

// ElementSize is the bytes of one element, 0 for an unknown type.
func (d DType) ElementSize() int64 {
	switch d {
	case F64, I64, U64:
		return 8
	case F32, I32, U32:
		return 4
	case F16, BF16, I16, U16:
		return 2
	case I8, U8, Bool:
		return 1
	}
	return 0
}

// Count is the number of elements of the shape, 1 for a scalar. The product of the dimensions that are not zero must
// fit too: a zero beside huge ones would hide an overflow.
func Count(shape []int64) (int64, error) {
	if len(shape) > MaxDims {
		return 0, refuse("a shape has %d dimensions, the limit is %d", len(shape), MaxDims)
	}
	n, empty := int64(1), false
	for _, d := range shape {
		switch {
		case d < 0:
			return 0, refuse("a dimension is negative")
		case d == 0:
			empty = true
		case n > math.MaxInt64/d:
			return 0, refuse("the number of elements overflows")
		default:
			n *= d
		}
	}
	if empty {
		return 0, nil
	}
	return n, nil
}

// Count is the number of elements; see the function Count.
func (t Tensor) Count() (int64, error) { return Count(t.Shape) }

// Bytes is the length of the tensor's data.
func (t Tensor) Bytes() (int64, error) {
	size := t.DType.ElementSize()
	if size == 0 {
		return 0, refuse("tensor %s has the unknown dtype %s", quote(t.Name), quote(string(t.DType)))
	}
	n, err := t.Count()
	if err != nil {
		return 0, fmt.Errorf("tensor %s: %w", quote(t.Name), err)
	}
	if n > math.MaxInt64/size {
		return 0, refuse("the data of tensor %s overflow", quote(t.Name))
	}
	return n * size, nil
}

// String gives "name dtype[shape]" for people.
func (t Tensor) String() string {
	return quote(t.Name) + " " + quoteType(t.DType) + string(appendShape(nil, t.Shape))
}

// Canonical reports whether the tensors are in canonical order: names strictly ascending, bytewise.
func Canonical(ts []Tensor) bool {
	for i := 1; i < len(ts); i++ {
		if ts[i-1].Name >= ts[i].Name {
			return false
		}
	}
	return true
}

// LayoutDigest is the SHA-256 of names, dtypes and shapes in canonical order. It does not depend on the order given.
// The text that is hashed is one header line, then per tensor: length of the name, name, dtype, shape.
func LayoutDigest(ts []Tensor) domain.Digest {
	sorted := slices.Clone(ts)
	slices.SortStableFunc(sorted, func(a, b Tensor) int { return cmp.Compare(a.Name, b.Name) })
	h := sha256.New()
	_, _ = io.WriteString(h, "tensorturn-layout 1\n")
	var line []byte
	for _, t := range sorted {
		line = strconv.AppendInt(line[:0], int64(len(t.Name)), 10)
		line = append(line, ':')
		line = append(line, t.Name...)
		line = append(line, ' ')
		line = append(line, t.DType...)
		line = appendShape(line, t.Shape)
		line = append(line, '\n')
		_, _ = h.Write(line)
	}
	return domain.Digest(hex.EncodeToString(h.Sum(nil)))
}

// Compare says how got differs from want, both in the same order: nil, or a domain.KindInvalid error that names the
// first difference.
func Compare(want, got []Tensor) error {
	for i := range min(len(want), len(got)) {
		w, g := want[i], got[i]
		if w.Name != g.Name {
			return refuse("tensor %d is %s, wanted %s", i, quote(g.Name), quote(w.Name))
		}
		if w.DType != g.DType || !slices.Equal(w.Shape, g.Shape) {
			return refuse("tensor %s is %s%s, wanted %s%s", quote(w.Name), quoteType(g.DType), appendShape(nil, g.Shape),
				quoteType(w.DType), appendShape(nil, w.Shape))
		}
	}
	if len(want) != len(got) {
		return refuse("there are %d tensors, wanted %d", len(got), len(want))
	}
	return nil
}

// appendShape adds a shape like "[64,10]".
func appendShape(b []byte, shape []int64) []byte {
	b = append(b, '[')
	for i, d := range shape {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, d, 10)
	}
	return append(b, ']')
}

// maxWhy keeps errors about foreign bytes short: with the operation they stay below 200 bytes.
const maxWhy = 170

func refuse(format string, args ...any) error {
	return domain.Invalid("read safetensors", domain.Clip(fmt.Sprintf(format, args...), maxWhy), "")
}

// quote makes a short printable form of foreign text.
func quote(s string) string {
	q := strconv.QuoteToASCII(domain.Clip(s, 48))
	if len(q) > 50 {
		return q[:46] + `..."`
	}
	return q
}

func quoteType(d DType) string {
	if d.ElementSize() > 0 {
		return string(d)
	}
	return quote(string(d))
}
