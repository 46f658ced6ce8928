package safetensors

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"tensorturn/domain"
)

// Writer writes a file in canonical order: the header at once, then the data as they come. The same tensors, metadata
// and data give the same bytes on every machine. Not safe for concurrent use.
type Writer struct {
	dst  io.Writer
	size int64 // bytes of the whole file
	left int64 // bytes of data still to come
	err  error
}

// NewWriter writes the header. The tensors must be in canonical order. The metadata "format": "pt" is added when there
// is no format: other readers ask for it. Bad tensors are domain.KindInvalid; errors of dst keep their kind.
func NewWriter(dst io.Writer, ts []Tensor, metadata map[string]string) (*Writer, error) {
	head, data, err := encodeHeader(ts, metadata)
	if err != nil {
		return nil, err
	}
	w := &Writer{dst: dst, size: int64(len(head)) + data, left: data}
	if _, err := dst.Write(head); err != nil {
		return nil, fmt.Errorf("write safetensors header: %w", err)
	}
	return w, nil
}

// Size is the length in bytes of the file that NewWriter with the same arguments begins.
func Size(ts []Tensor, metadata map[string]string) (int64, error) {
	head, data, err := encodeHeader(ts, metadata)
	return int64(len(head)) + data, err
}

// Size is the length in bytes of the whole file.
func (w *Writer) Size() int64 { return w.size }

// Write takes the next bytes of data, tensor after tensor without a gap.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if int64(len(p)) > w.left {
		w.err = domain.Invalid("write safetensors", fmt.Sprintf("%d bytes are more than the tensors have left (%d)", len(p), w.left), "")
		return 0, w.err
	}
	n, err := w.dst.Write(p)
	w.left -= int64(n)
	w.err = err
	return n, err
}

// Close makes sure that all data came. It does not close what is below.
func (w *Writer) Close() error {
	if w.err == nil && w.left > 0 {
		w.err = domain.Invalid("write safetensors", fmt.Sprintf("%d bytes of data are missing", w.left), "")
	}
	return w.err
}

// encodeHeader gives length and header, padded so that the data begin at a multiple of 8, and the length of the data.
// The JSON is made by hand: encoding/json has changed its escapes before, and these bytes are hashed.
func encodeHeader(ts []Tensor, metadata map[string]string) (head []byte, data int64, err error) {
	if err := checkTensors(ts, metadata); err != nil {
		return nil, 0, err
	}
	all := map[string]string{"format": "pt"}
	maps.Copy(all, metadata)
	b := append(make([]byte, 8, 256+128*len(ts)), `{"`+metadataKey+`":{`...)
	for i, k := range slices.Sorted(maps.Keys(all)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, k), ':')
		b = appendString(b, all[k])
	}
	b = append(b, '}')
	for _, t := range ts {
		n, err := t.Bytes()
		if err != nil {
			return nil, 0, err
		}
		b = appendString(append(b, ','), t.Name)
		b = append(append(b, `:{"dtype":"`...), t.DType...)
		b = append(appendShape(append(b, `","shape":`...), t.Shape), `,"data_offsets":`...)
		b = append(appendShape(b, []int64{data, data + n}), '}')
		if data += n; data < 0 {
			return nil, 0, refuse("the data of all tensors overflow")
		}
	}
	b = append(b, '}')
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	if len(b)-8 > MaxHeaderBytes {
		return nil, 0, refuse("the header would have %d bytes, the limit is %d", len(b)-8, MaxHeaderBytes)
	}
	binary.LittleEndian.PutUint64(b, uint64(len(b)-8))
	return b, data, nil
}

// checkTensors refuses what our own reader would refuse.
func checkTensors(ts []Tensor, metadata map[string]string) error {
	if len(ts) > MaxTensors || len(metadata) >= MaxMetadata {
		return refuse("%d tensors and %d metadata keys are above the limits of %d and %d", len(ts), len(metadata), MaxTensors, MaxMetadata-1)
	}
	if !Canonical(ts) {
		return refuse("the tensors to write are not in canonical order")
	}
	for _, t := range ts {
		if t.Name == "" || t.Name == metadataKey || len(t.Name) > MaxTensorName || !utf8.ValidString(t.Name) {
			return refuse("%s cannot be a tensor's name", quote(t.Name))
		}
	}
	for k, v := range metadata {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return refuse("a metadata entry is not valid UTF-8")
		}
	}
	return nil
}

// appendString adds s as a JSON string with the fewest escapes that are allowed.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20:
			b = append(b, `\u00`...)
			b = append(b, strconv.FormatUint(uint64(c)+0x100, 16)[1:]...)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
