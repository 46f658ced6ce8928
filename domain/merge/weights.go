package merge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"tensorturn/domain"
	"tensorturn/domain/safetensors"
)

// weights walks a file of plain values, tensor by tensor and tile by tile.
type weights struct {
	what string // "base", "local weights", "momentum", for errors
	file *safetensors.Reader
	data io.Reader
	name string
	raw  []byte // the tile read last
}

// openWeights opens F32 weights that can be merged.
func openWeights(what string, src io.Reader) (*weights, error) {
	file, err := safetensors.NewReader(src)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	if err := CheckWeights(file.Tensors()); err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return &weights{what: what, file: file}, nil
}

// next goes to the following tensor, or gives io.EOF behind the last one.
func (w *weights) next() (safetensors.Tensor, error) {
	t, data, err := w.file.Next()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return t, io.EOF
		}
		return t, fmt.Errorf("read %s: %w", w.what, err)
	}
	w.data, w.name = data, t.Name
	return t, nil
}

// end makes sure that no tensor is left, and that the file is whole to its last byte. Without weights, nil, there is nothing to end.
func (w *weights) end() error {
	if w == nil {
		return nil
	}
	t, err := w.next()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return domain.Invalid("", fmt.Sprintf("%s has tensor %q too many", w.what, domain.Clip(t.Name, 60)), "")
}

// read fills the raw tile with n bytes of the tensor. They are valid until the next read.
func (w *weights) read(n int) ([]byte, error) {
	if cap(w.raw) < n {
		w.raw = make([]byte, n)
	}
	w.raw = w.raw[:n]
	if _, err := io.ReadFull(w.data, w.raw); err != nil {
		return nil, fmt.Errorf("read %s: %w", w.what, cut(err, w.name))
	}
	return w.raw, nil
}

// cut gives an end of data in the middle of a tile a kind.
func cut(err error, name string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return domain.Invalid("", fmt.Sprintf("tensor %q has too few values", domain.Clip(name, 60)), "")
	}
	return err
}

// widen turns little-endian float32 values into float64.
func widen(dst []float64, raw []byte) {
	raw = raw[:4*len(dst)]
	for j := range dst {
		dst[j] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*j:])))
	}
}

// firstNotFinite is the index of the first NaN or Inf among little-endian float32 values, -1 when there is none.
// Two values at a time: adding one to an exponent of all ones carries into the sign bit, and nowhere further.
func firstNotFinite(raw []byte) int {
	const exponents, ones, signs = 0x7f8000007f800000, 0x0080000000800000, 0x8000000080000000
	carry := uint64(0)
	pairs := raw[:len(raw)&^7]
	for len(pairs) >= 32 {
		p := (*[32]byte)(pairs)
		carry |= binary.LittleEndian.Uint64(p[0:])&exponents + ones
		carry |= binary.LittleEndian.Uint64(p[8:])&exponents + ones
		carry |= binary.LittleEndian.Uint64(p[16:])&exponents + ones
		carry |= binary.LittleEndian.Uint64(p[24:])&exponents + ones
		pairs = pairs[32:]
	}
	for len(pairs) > 0 {
		carry |= binary.LittleEndian.Uint64(pairs)&exponents + ones
		pairs = pairs[8:]
	}
	if len(raw)%8 == 4 {
		carry |= uint64(binary.LittleEndian.Uint32(raw[len(raw)-4:]))&exponents + ones
	}
	if carry&signs == 0 {
		return -1
	}
	for j := 0; ; j++ {
		if binary.LittleEndian.Uint32(raw[4*j:])&0x7f800000 == 0x7f800000 {
			return j
		}
	}
}
