package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Reader reads a file once, from front to end. It holds the header and no data. Not safe for concurrent use.
type Reader struct {
	src  io.Reader
	head header
	next int      // tensor Next gives
	data *section // of the tensor Next gave last, nil before
	err  error    // sticky
}

// section is the rest of one tensor's data.
type section struct {
	r    *Reader
	left int64
	name string
}

// NewReader reads and checks the header. Every rule that can be checked without the data is checked here. Errors about
// the bytes are domain.KindInvalid with at most 200 bytes of text; errors of src keep their kind.
func NewReader(src io.Reader) (*Reader, error) {
	var length [8]byte
	if _, err := io.ReadFull(src, length[:]); err != nil {
		return nil, source("the header's length", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > MaxHeaderBytes {
		return nil, refuse("the header has %d bytes, the limit is %d", n, MaxHeaderBytes)
	}
	// ReadAll grows with what is really there: a short stream that announces 8 MiB costs little.
	b, err := io.ReadAll(io.LimitReader(src, int64(n)))
	if err == nil && uint64(len(b)) < n {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, source("the header", err)
	}
	head, err := parseHeader(b)
	if err != nil {
		return nil, err
	}
	return &Reader{src: src, head: head}, nil
}

// Tensors lists the tensors in file order: by place in the data.
func (r *Reader) Tensors() []Tensor { return slices.Clone(r.head.tensors) }

// Metadata is the file's own text, nil when it has none. It is the reader's.
func (r *Reader) Metadata() map[string]string { return r.head.metadata }

// Next gives the next tensor and a reader of its data, valid until the following Next, which skips what was left. At
// the end it gives io.EOF, but only if the file ends there too.
func (r *Reader) Next() (Tensor, io.Reader, error) {
	if r.err != nil {
		return Tensor{}, nil, r.err
	}
	if r.data != nil {
		if _, err := io.Copy(io.Discard, r.data); err != nil {
			return Tensor{}, nil, err
		}
	}
	if r.next == len(r.head.tensors) {
		r.err = r.end()
		return Tensor{}, nil, r.err
	}
	t := r.head.tensors[r.next]
	r.data = &section{r: r, left: r.head.sizes[r.next], name: t.Name}
	r.next++
	return t, r.data, nil
}

// end makes sure that nothing follows.
func (r *Reader) end() error {
	_, err := io.ReadFull(r.src, make([]byte, 1))
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if err != nil {
		return source("the end of the file", err)
	}
	return refuse("there are bytes behind the last tensor")
}

func (s *section) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	if s.r.err != nil {
		return 0, s.r.err
	}
	n, err := s.r.src.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	if err != nil && s.left > 0 {
		s.r.err = source("tensor "+quote(s.name), err)
		return n, s.r.err
	}
	return n, nil
}

// source tells a file that ends too early, which is the file's fault, from a source that cannot be read now.
func source(what string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return refuse("it is cut off in %s", what)
	}
	return fmt.Errorf("read %s: %w", what, err)
}
