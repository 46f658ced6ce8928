// Package safetensors reads and writes the safetensors format: 8 bytes of header length, a JSON header, raw
// little-endian data. Reader and writer are streaming, strict and bounded, because the bytes are foreign: no duplicate
// name or key, no hole or overlap, no overflow in a shape, at most MaxHeaderBytes of header and MaxTensors tensors.
//
// Canonical order, which tensorturn's own files have and its merge relies on, is ascending by name; files of others may
// have any order. It never looks at values; gates do.
//
// Source: the format's description in huggingface/safetensors.
package safetensors

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
	MaxTensorName  = 512
	MaxDims        = 16
)

// Tensor describes one tensor of a file.
type Tensor struct {
	Name  string
	DType DType
	Shape []int64 // row-major, empty for a scalar
}
