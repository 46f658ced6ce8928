package vote

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"tensorturn/domain"
	"tensorturn/domain/safetensors"
)

// Tensors of an outputs file, in canonical order.
const (
	labelsName        = "labels"        // I32 [rows], may be missing
	probabilitiesName = "probabilities" // F32 [rows, classes]
)

const opRead = "read member outputs"

// Outputs is what one member says about the held-out rows, in their order.
type Outputs struct {
	Classes       int
	Probabilities []float32 // [rows, Classes]
	// Labels [rows] are the truth where the packed data does not have it, since a program of the owner's own reads its
	// data itself; nil otherwise.
	Labels []int32
}

// WriteOutputs writes a member's outputs as a safetensors file. It refuses what no vote could read.
func WriteOutputs(w io.Writer, o Outputs) error {
	const op = "write member outputs"
	if o.Classes < 1 || len(o.Probabilities) == 0 || len(o.Probabilities)%o.Classes != 0 {
		return domain.Invalid(op, fmt.Sprintf("%d probabilities for %d classes", len(o.Probabilities), o.Classes), "give every row a probability for every class")
	}
	rows := len(o.Probabilities) / o.Classes
	if err := checkMember(0, o.Classes, rows, o.Probabilities); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if o.Labels != nil {
		if err := checkLabels(op, o.Labels, rows, o.Classes); err != nil {
			return err
		}
	}
	buf := bufio.NewWriterSize(w, 64<<10)
	out, err := safetensors.NewWriter(buf, outputTensors(rows, o.Classes, o.Labels != nil), map[string]string{"format": "pt"})
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	var word [4]byte
	put := func(bits uint32) {
		if err == nil {
			binary.LittleEndian.PutUint32(word[:], bits)
			_, err = out.Write(word[:])
		}
	}
	for _, l := range o.Labels {
		put(uint32(l))
	}
	for _, p := range o.Probabilities {
		put(math.Float32bits(p))
	}
	if err == nil {
		err = out.Close()
	}
	if err == nil {
		err = buf.Flush()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

func outputTensors(rows, classes int, labels bool) []safetensors.Tensor {
	ts := []safetensors.Tensor{
		{Name: labelsName, DType: safetensors.I32, Shape: []int64{int64(rows)}},
		{Name: probabilitiesName, DType: safetensors.F32, Shape: []int64{int64(rows), int64(classes)}},
	}
	if !labels {
		return ts[1:]
	}
	return ts
}

// Stride is the distance between the rows that a vote of so many members uses: 1 unless all of them together hold more
// than MaxValues. Thinning loses precision of the figures (tens of thousands of rows are left), not correctness.
func Stride(members, rows, classes int) int {
	all := int64(members) * int64(rows) * int64(classes)
	return int(max(1, (all+MaxValues-1)/MaxValues))
}

// ReadOutputs reads rows 0, stride, 2·stride, … of an outputs file of the given shape, in one pass and with memory for
// what it gives. Anything but such a file is domain.KindIntegrity; errors of the source are passed on.
func ReadOutputs(r io.Reader, rows, classes, stride int) (Outputs, error) {
	domain.Assert(rows > 0 && classes > 0 && stride > 0, "outputs have rows and classes, and are read with a stride")
	used := (rows + stride - 1) / stride
	if int64(used)*int64(classes) > MaxValues {
		return Outputs{}, domain.Invalid(opRead, fmt.Sprintf("%d rows of %d classes are more than %d values", used, classes, MaxValues), "use a larger stride")
	}
	file, err := safetensors.NewReader(bufio.NewReaderSize(r, 64<<10))
	if err != nil {
		return Outputs{}, fmt.Errorf("%s: %w", opRead, err)
	}
	labels := len(file.Tensors()) == 2
	if err := safetensors.Compare(outputTensors(rows, classes, labels), file.Tensors()); err != nil {
		return Outputs{}, domain.Integrity(opRead, err.Error(), "")
	}
	o := Outputs{Classes: classes, Probabilities: make([]float32, 0, used*classes)}
	if labels {
		o.Labels = make([]int32, 0, used)
		err = walk(file, rows, 1, stride, func(bits uint32) { o.Labels = append(o.Labels, int32(bits)) })
	}
	if err == nil {
		err = walk(file, rows, classes, stride, func(bits uint32) { o.Probabilities = append(o.Probabilities, math.Float32frombits(bits)) })
	}
	if err == nil {
		_, _, err = file.Next() // io.EOF: nothing may follow
	}
	if !errors.Is(err, io.EOF) {
		return Outputs{}, fmt.Errorf("%s: %w", opRead, err)
	}
	return o, nil
}

// walk reads the next tensor row by row and gives the values of every stride-th.
func walk(file *safetensors.Reader, rows, width, stride int, value func(bits uint32)) error {
	_, data, err := file.Next()
	if err != nil {
		return err
	}
	raw := make([]byte, 4*width)
	for i := range rows {
		if _, err := io.ReadFull(data, raw); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return domain.Integrity(opRead, fmt.Sprintf("the file ends in row %d of %d", i, rows), "")
			}
			return err
		}
		if i%stride == 0 {
			for j := range width {
				value(binary.LittleEndian.Uint32(raw[4*j:]))
			}
		}
	}
	return nil
}
