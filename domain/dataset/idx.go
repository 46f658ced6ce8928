package dataset

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"tensorturn/domain"
)

// IDX is the format of MNIST and its like: two zero bytes, the kind of value (8 is a byte), the number of dimensions, each
// dimension as big-endian uint32, and the values. Pictures are bytes [count, height, width] or [count, channels, height,
// width]; labels are bytes [count].

const (
	opIDX    = "read IDX file"
	idxBytes = 8 // the kind of value that is a byte
)

// Pictures are the contents of an IDX file of pictures and of its labels.
type Pictures struct {
	Shape  []int  // channels, height, width
	Values []byte // count × channels × height × width
	Labels []byte // one a picture
}

// IsIDX reports whether the first bytes of a file, unpacked, are those of one.
func IsIDX(head []byte) bool {
	return len(head) >= 4 && head[0] == 0 && head[1] == 0 && head[2] == idxBytes && head[3] >= 1 && head[3] <= 4
}

// ReadIDX reads pictures and their labels, plain or gzip.
func ReadIDX(pictures, labels io.Reader) (*Pictures, error) {
	dims, values, err := readIDX(pictures, "pictures")
	if err != nil {
		return nil, err
	}
	p := &Pictures{Values: values}
	switch len(dims) {
	case 3:
		p.Shape = []int{1, dims[1], dims[2]}
	case 4:
		p.Shape = dims[1:]
	default:
		return nil, domain.Invalid(opIDX, fmt.Sprintf("the pictures have %d dimensions", len(dims)), "give a file of [count, height, width]; is it the labels' file?")
	}
	dims, p.Labels, err = readIDX(labels, "labels")
	if err != nil {
		return nil, err
	}
	if len(dims) != 1 {
		return nil, domain.Invalid(opIDX, fmt.Sprintf("the labels have %d dimensions", len(dims)), "give a file of [count] in data.labels")
	}
	if size := p.size(); len(p.Labels)*size != len(p.Values) {
		return nil, domain.Invalid(opIDX, fmt.Sprintf("%d pictures and %d labels", len(p.Values)/size, len(p.Labels)), "give two files that belong together")
	}
	return p, nil
}

func (p *Pictures) size() int { return p.Shape[0] * p.Shape[1] * p.Shape[2] }

// readIDX reads one file of bytes. Memory follows the bytes that are there, not the dimensions that are claimed.
func readIDX(r io.Reader, what string) (dims []int, values []byte, err error) {
	bad := func(why string) ([]int, []byte, error) {
		return nil, nil, domain.Invalid(opIDX, "the file of the "+what+" "+why, "copy or download it again")
	}
	short := func(err error) ([]int, []byte, error) {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return bad("is cut off")
		}
		return nil, nil, sourceError(opIDX, err)
	}
	in, err := Unzipped(r, opIDX)
	if err != nil {
		return nil, nil, err
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(in, head); err != nil {
		return short(err)
	}
	if head[0] != 0 || head[1] != 0 || head[3] < 1 || head[3] > 4 {
		return bad("is no IDX file")
	}
	if head[2] != idxBytes {
		return bad(fmt.Sprintf("holds values of kind %#x, and only bytes (0x08) can be read", head[2]))
	}
	size := int64(1)
	for range head[3] {
		d := make([]byte, 4)
		if _, err := io.ReadFull(in, d); err != nil {
			return short(err)
		}
		n := int64(binary.BigEndian.Uint32(d))
		if n < 1 || n > maxIDXBytes || size*n > maxIDXBytes {
			return bad(fmt.Sprintf("would hold more than %d values, or none", int64(maxIDXBytes)))
		}
		dims, size = append(dims, int(n)), size*n
	}
	var all bytes.Buffer
	n, err := io.Copy(&all, io.LimitReader(in, size+1))
	switch {
	case err != nil:
		return nil, nil, sourceError(opIDX, err)
	case n < size:
		return bad(fmt.Sprintf("ends after %d of %d values", n, size))
	case n > size:
		return bad(fmt.Sprintf("goes on behind its %d values", size))
	}
	return dims, all.Bytes(), nil
}

// PackIDX splits pictures like Pack and writes the packed form: a picture stays bytes, and one mean and deviation stand for
// all of its values, since single places of pictures are often nearly constant.
func PackIDX(p *Pictures, holdout float64, seed uint64, w io.Writer) (Facts, error) {
	if err := checkHoldout(holdout); err != nil {
		return Facts{}, err
	}
	size := p.size()
	if size >= MaxColumns || len(p.Values) > MaxCells {
		return Facts{}, domain.Invalid(opPack, fmt.Sprintf("%d pictures of %d values", len(p.Labels), size), "give fewer or smaller pictures")
	}
	t := &Table{Label: "label", Labels: make([]int, len(p.Labels))}
	var seen [256]int
	for _, l := range p.Labels {
		seen[l] = 1
	}
	for l, place := 0, 0; l < 256; l++ {
		if seen[l] == 1 {
			t.Classes, seen[l] = append(t.Classes, strconv.Itoa(l)), place
			place++
		}
	}
	for i, l := range p.Labels {
		t.Labels[i] = seen[l]
	}
	train, held := split(t, holdout, seed)
	f := Facts{Samples: len(train), Heldout: len(held), Seed: seed, Holdout: holdout, Label: t.Label, Classes: t.Classes, Shape: p.Shape, Bytes: true}
	mean, std := byteStatistics(p.Values, size, train)
	for i := range size {
		f.Columns, f.Mean, f.Std = append(f.Columns, "pixel "+strconv.Itoa(i+1)), append(f.Mean, mean), append(f.Std, std)
	}
	f.Block = f.block()
	if why := f.check(); why != "" {
		return Facts{}, domain.Invalid(opPack, why, "give pictures within the limits")
	}
	row := make([]byte, 0, f.rowBytes())
	return f, f.write(w, slices.Concat(train, held), func(i int) ([]byte, error) {
		return binary.LittleEndian.AppendUint32(append(row, p.Values[i*size:(i+1)*size]...), uint32(t.Labels[i])), nil
	})
}

// byteStatistics gives mean and population deviation of all values of the rows, from exact sums of integers.
func byteStatistics(values []byte, size int, rows []int) (mean, std float64) {
	var sum, square uint64
	for _, i := range rows {
		for _, v := range values[i*size : (i+1)*size] {
			sum += uint64(v)
			square += uint64(v) * uint64(v)
		}
	}
	n := float64(len(rows)) * float64(size)
	mean = float64(sum) / n
	variance := float64(square)/n - float64(mean*mean)
	if !(variance > 1e-9) {
		return mean, 1
	}
	return mean, math.Sqrt(variance)
}
