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
	want := at + f.size()
	if size >= 0 && size != want {
		return nil, damaged(fmt.Sprintf("it has %d bytes instead of %d", size, want))
	}
	return &Set{facts: f, r: r, at: at, row: f.rowBytes()}, nil
}

// Facts gives the header. Its slices must not be changed.
func (s *Set) Facts() Facts { return s.facts }

// Rows reads the training rows idx, in that order and with repetitions allowed, into features (len(idx) × Features)
// and labels (len(idx) × Targets). Neighbouring rows are read together. It allocates nothing once it has seen a request as large.
func (s *Set) Rows(idx []int, features []float32, labels []int) error {
	return s.rows(idx, features, target{labels: labels})
}

// ValueRows is Rows of a regression: values are the standardised targets.
func (s *Set) ValueRows(idx []int, features, values []float32) error {
	return s.rows(idx, features, target{values: values})
}

// target is where what is to be predicted goes: labels, or values of a regression.
type target struct {
	labels []int
	values []float32
}

func (s *Set) rows(idx []int, features []float32, to target) error {
	s.mustFit(len(idx), features, to)
	s.order = s.order[:0]
	for i, r := range idx {
		domain.Assert(r >= 0 && r < s.facts.Samples, "a row of the training part is asked for by its number")
		s.order = append(s.order, i)
	}
	slices.SortFunc(s.order, func(a, b int) int { return idx[a] - idx[b] })
	for from := 0; from < len(s.order); {
		first := int64(idx[s.order[from]])
		upto, begin := from+1, s.facts.place(first)
		end := begin + s.row
		for ; upto < len(s.order); upto++ {
			next := s.facts.place(int64(idx[s.order[upto]]))
			if next-end > maxGap || next+s.row-begin > maxSpan {
				break
			}
			end = max(end, next+s.row)
		}
		span, err := s.read(begin, end-begin)
		if err != nil {
			return err
		}
		for _, i := range s.order[from:upto] {
			row := int64(idx[i])
			if err := s.decode(span[s.facts.place(row)-begin:], row, i, features, to); err != nil {
				return err
			}
		}
		from = upto
	}
	return nil
}

// Heldout reads n held-out rows from number from, counted from 0 within that part, like Rows.
func (s *Set) Heldout(from, n int, features []float32, labels []int) error {
	return s.heldout(from, n, features, target{labels: labels})
}

// HeldoutValues is Heldout of a regression.
func (s *Set) HeldoutValues(from, n int, features, values []float32) error {
	return s.heldout(from, n, features, target{values: values})
}

func (s *Set) heldout(from, n int, features []float32, to target) error {
	s.mustFit(n, features, to)
	domain.Assert(from >= 0 && n >= 0 && from+n <= s.facts.Heldout, "rows of the held-out part are asked for by their numbers")
	for done := 0; done < n; {
		first := int64(s.facts.Samples + from + done)
		count, begin := 1, s.facts.place(first)
		end := begin + s.row
		for ; done+count < n; count++ {
			next := s.facts.place(first+int64(count)) + s.row
			if next-begin > maxSpan {
				break
			}
			end = next
		}
		span, err := s.read(begin, end-begin)
		if err != nil {
			return err
		}
		for i := range count {
			row := first + int64(i)
			if err := s.decode(span[s.facts.place(row)-begin:], row, done+i, features, to); err != nil {
				return err
			}
		}
		done += count
	}
	return nil
}

func (s *Set) mustFit(n int, features []float32, to target) {
	domain.Assert((to.values != nil) == s.facts.Regression() || n == 0, "a regression has values, and everything else labels")
	domain.Assert(len(features) == n*s.facts.Features() && len(to.labels)+len(to.values) == n*s.facts.Targets(), "the buffers hold exactly the rows asked for")
}

// read fetches the bytes from offset begin within the rows; the result is valid until the next read.
func (s *Set) read(begin, size int64) ([]byte, error) {
	if int64(cap(s.scratch)) < size {
		s.scratch = make([]byte, max(size, min(maxSpan, s.facts.size())))
	}
	span := s.scratch[:size]
	return span, readFull(s.r, span, s.at+begin)
}

// decode writes one row to place i of the buffers.
func (s *Set) decode(raw []byte, row int64, i int, features []float32, to target) error {
	n := s.facts.Features()
	out := features[i*n : i*n+n]
	raw = raw[:s.row]
	if t := s.facts.Predicts; t > 0 {
		decodeText(raw, out, to.labels[i*t:i*t+t])
		return nil
	}
	if s.facts.Bytes {
		for j, b := range raw[:n] {
			out[j] = s.facts.standard(j, float64(b))
			if math.Float32bits(out[j])&0x7f800000 == 0x7f800000 {
				return damaged(fmt.Sprintf("column %q cannot be standardised", s.facts.Columns[j]))
			}
		}
		return s.decodeTarget(raw[n:], row, i, to)
	}
	for j := range out {
		bits := binary.LittleEndian.Uint32(raw[j*4:])
		if bits&0x7f800000 == 0x7f800000 {
			return damaged(fmt.Sprintf("row %d, column %q is not finite", row, s.facts.Columns[j]))
		}
		out[j] = math.Float32frombits(bits)
	}
	return s.decodeTarget(raw[n*4:], row, i, to)
}

func (s *Set) decodeTarget(raw []byte, row int64, i int, to target) error {
	bits := binary.LittleEndian.Uint32(raw)
	if to.values != nil {
		if bits&0x7f800000 == 0x7f800000 {
			return damaged(fmt.Sprintf("the target of row %d is not finite", row))
		}
		to.values[i] = math.Float32frombits(bits)
		return nil
	}
	if bits >= uint32(len(s.facts.Classes)) {
		return damaged(fmt.Sprintf("row %d has class %d of %d", row, bits, len(s.facts.Classes)))
	}
	to.labels[i] = int(bits)
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
