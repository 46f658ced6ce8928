package dataset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"tensorturn/domain"
)

const (
	maxGap  = 4 << 10 // bytes worth reading over to save a read: one page
	maxSpan = 1 << 20 // bytes of one read: the scratch buffer's size, or one row if that is longer
)

// Set reads rows of a packed data set. It keeps scratch memory of its own: one goroutine at a time.
type Set struct {
	facts   Facts
	r       io.ReaderAt
	at      int64 // where the rows begin
	row     int64 // bytes of a row
	order   []int // scratch: places in the request, by row number
	scratch []byte
}

// Open reads the header. size is the blob's length in bytes and must be exactly what the header asks for; a negative
// size is not checked, and a short blob then shows when its rows are read. Bytes that are not a packed data set are
// domain.KindIntegrity; errors of the source are passed on.
func Open(r io.ReaderAt, size int64) (*Set, error) {
	f, at, err := readHeader(r)
	if err != nil {
		return nil, err
	}
	row := f.rowBytes()
	want := at + int64(f.Samples+f.Heldout)*row
	if size >= 0 && size != want {
		return nil, damaged(fmt.Sprintf("it has %d bytes instead of %d", size, want))
	}
	return &Set{facts: f, r: r, at: at, row: row}, nil
}

// Facts gives the header. Its slices must not be changed.
func (s *Set) Facts() Facts { return s.facts }

// Rows reads the training rows idx, in that order and with repetitions allowed, into features (len(idx) × Features)
// and labels (len(idx)). Neighbouring rows are read together. It allocates nothing once it has seen a request as large.
func (s *Set) Rows(idx []int, features []float32, labels []int) error {
	s.mustFit(len(idx), features, labels)
	s.order = s.order[:0]
	for i, r := range idx {
		domain.Assert(r >= 0 && r < s.facts.Samples, "a row of the training part is asked for by its number")
		s.order = append(s.order, i)
	}
	slices.SortFunc(s.order, func(a, b int) int { return idx[a] - idx[b] })
	for from := 0; from < len(s.order); {
		to := from + 1
		first, last := int64(idx[s.order[from]]), int64(idx[s.order[from]])
		for ; to < len(s.order); to++ {
			next := int64(idx[s.order[to]])
			if (next-last-1)*s.row > maxGap || (next-first+1)*s.row > maxSpan {
				break
			}
			last = next
		}
		span, err := s.read(first, int(last-first+1))
		if err != nil {
			return err
		}
		for _, i := range s.order[from:to] {
			row := int64(idx[i])
			if err := s.decode(span[(row-first)*s.row:], row, i, features, labels); err != nil {
				return err
			}
		}
		from = to
	}
	return nil
}

// Heldout reads n held-out rows from number from, counted from 0 within that part, like Rows.
func (s *Set) Heldout(from, n int, features []float32, labels []int) error {
	s.mustFit(n, features, labels)
	domain.Assert(from >= 0 && n >= 0 && from+n <= s.facts.Heldout, "rows of the held-out part are asked for by their numbers")
	step := int(max(1, maxSpan/s.row))
	for done := 0; done < n; done += step {
		first := int64(s.facts.Samples + from + done)
		count := min(step, n-done)
		span, err := s.read(first, count)
		if err != nil {
			return err
		}
		for i := range count {
			if err := s.decode(span[int64(i)*s.row:], first+int64(i), done+i, features, labels); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Set) mustFit(n int, features []float32, labels []int) {
	domain.Assert(len(features) == n*s.facts.Features() && len(labels) == n, "the buffers hold exactly the rows asked for")
}

// read fetches n rows from row first; the result is valid until the next read.
func (s *Set) read(first int64, n int) ([]byte, error) {
	size := int64(n) * s.row
	if int64(cap(s.scratch)) < size {
		s.scratch = make([]byte, max(size, min(maxSpan, s.row*int64(s.facts.Samples+s.facts.Heldout))))
	}
	span := s.scratch[:size]
	return span, readFull(s.r, span, s.at+first*s.row)
}

// decode writes one row to place i of the buffers.
func (s *Set) decode(raw []byte, row int64, i int, features []float32, labels []int) error {
	n := s.facts.Features()
	out := features[i*n : i*n+n]
	raw = raw[:s.row]
	for j := range out {
		bits := binary.LittleEndian.Uint32(raw[j*4:])
		if bits&0x7f800000 == 0x7f800000 {
			return damaged(fmt.Sprintf("row %d, column %q is not finite", row, s.facts.Columns[j]))
		}
		out[j] = math.Float32frombits(bits)
	}
	label := binary.LittleEndian.Uint32(raw[n*4:])
	if label >= uint32(len(s.facts.Classes)) {
		return damaged(fmt.Sprintf("row %d has class %d of %d", row, label, len(s.facts.Classes)))
	}
	labels[i] = int(label)
	return nil
}

// readFull fills buf from offset at. A blob that ends early is damaged; other errors keep their kind.
func readFull(r io.ReaderAt, buf []byte, at int64) error {
	n, err := r.ReadAt(buf, at)
	switch {
	case n == len(buf):
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return damaged(fmt.Sprintf("it ends at byte %d", at+int64(n)))
	}
	return fmt.Errorf("read packed data set: %w", err)
}
