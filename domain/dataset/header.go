package dataset

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// The packed form:
//
//	8 bytes   magic "ttdata1\n"
//	4 bytes   length of the header, little-endian
//	header    Facts as JSON, in exactly the bytes encode gives
//	rows      training part, then held-out part; a row is Features float32, then its class as uint32, little-endian
//
// Of a regression the last number is the standardised target as float32. Of pictures whose values are bytes a row is
// Features bytes, standardised when they are read, then the class. Text has no rows but segments (text.go).
//
// A row keeps its label beside its features, so that a shuffle block lies in one or two parts of the blob.
const (
	magic      = "ttdata1\n"
	prefixSize = int64(len(magic)) + 4
	labelBytes = 4
	opOpen     = "open packed data set"
)

// Facts is what packing found. It is the header of the packed form.
type Facts struct {
	Samples int       `json:"samples"` // rows of the training part
	Heldout int       `json:"heldout"` // rows held out
	Block   int       `json:"block"`   // rows of one shuffle block
	Seed    uint64    `json:"seed"`    // of the split and the order of the rows
	Holdout float64   `json:"holdout"` // fraction asked for
	Label   string    `json:"label"`   // name of the label column
	Classes []string  `json:"classes"`
	Columns []string  `json:"columns"` // names of the features
	Mean    []float64 `json:"mean"`    // of the training part, one a feature
	Std     []float64 `json:"std"`     // population standard deviation, 1 for a constant column

	// Of text: bytes that a sample predicts behind its context, which is Features long, and bytes of one segment.
	Predicts int `json:"predicts,omitempty"`
	Segment  int `json:"segment,omitempty"`

	// Of a regression: run.TaskRegression, and how the training part's targets are standardised.
	Task       string  `json:"task,omitempty"`
	TargetMean float64 `json:"target_mean,omitempty"`
	TargetStd  float64 `json:"target_std,omitempty"`

	Shape []int `json:"shape,omitempty"` // channels, height and width of a row that is a picture
	Bytes bool  `json:"bytes,omitempty"` // a row's values are bytes
}

// Features is the number of columns without the label.
func (f Facts) Features() int { return len(f.Columns) }

// Run gives the facts as a run records them; blob is the digest of the packed blob.
func (f Facts) Run(blob domain.Digest) run.Dataset {
	d := run.Dataset{Blob: blob, Samples: f.Samples, Heldout: f.Heldout, Features: f.Features(),
		Classes: len(f.Classes), Block: f.Block, Predicts: f.Predicts, Task: f.Task}
	if f.Shape != nil {
		d.Channels, d.Height, d.Width = f.Shape[0], f.Shape[1], f.Shape[2]
	}
	return d
}

// Regression reports samples with a number instead of a class.
func (f Facts) Regression() bool { return f.Task == run.TaskRegression }

// Outputs names the values of one prediction: the classes, or the label of a regression.
func (f Facts) Outputs() []string {
	if f.Regression() {
		return []string{f.Label}
	}
	return f.Classes
}

// Targets is the number of labels of one sample.
func (f Facts) Targets() int { return max(f.Predicts, 1) }

// Standardise writes (raw − mean) / std of whole rows into out; both are rows × Features, row-major.
func (f Facts) Standardise(raw, out []float32) {
	n := f.Features()
	for i, v := range raw {
		out[i] = f.standard(i%n, float64(v))
	}
}

func (f Facts) standard(column int, v float64) float32 {
	return float32((v - f.Mean[column]) / f.Std[column])
}

// rowBytes is the length of one row or sample as it is read.
func (f Facts) rowBytes() int64 {
	if f.Predicts > 0 {
		return int64(f.sampleBytes())
	}
	if f.Bytes {
		return int64(f.Features()) + labelBytes
	}
	return rowBytes(f.Features())
}

// place is where a row begins, counted from the first one; held-out rows follow the training rows.
func (f Facts) place(row int64) int64 {
	if f.Predicts == 0 {
		return row * f.rowBytes()
	}
	per := int64(f.perSegment())
	return row/per*int64(f.Segment) + row%per*int64(f.Predicts)
}

// size is the length of all rows.
func (f Facts) size() int64 {
	rows := int64(f.Samples + f.Heldout)
	if f.Predicts == 0 {
		return rows * f.rowBytes()
	}
	return rows / int64(f.perSegment()) * int64(f.Segment)
}

func rowBytes(features int) int64 { return int64(features)*4 + labelBytes }

// block is how many rows fit one part of a blob, at most all of them; of text, in whole segments.
func (f Facts) block() int {
	if f.Predicts > 0 {
		return blockSamples(f)
	}
	return max(1, min(f.Samples, int(domain.MaxPartBytes/f.rowBytes())))
}

// encode gives the prefix and header.
func (f Facts) encode() ([]byte, error) {
	body, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encode data set header: %w", err)
	}
	if len(body) > MaxHeaderBytes {
		return nil, domain.Invalid(opPack, fmt.Sprintf("the header needs %d bytes, at most %d are allowed", len(body), MaxHeaderBytes),
			"use fewer columns or shorter names")
	}
	out := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(body)))
	return append(out, body...), nil
}

// readHeader reads and checks prefix and header; at is where the rows begin. The bytes may be anybody's.
func readHeader(r io.ReaderAt) (f Facts, at int64, err error) {
	prefix := make([]byte, prefixSize)
	if err := readFull(r, prefix, 0); err != nil {
		return f, 0, err
	}
	if string(prefix[:len(magic)]) != magic {
		return f, 0, damaged("it does not begin like one")
	}
	size := binary.LittleEndian.Uint32(prefix[len(magic):])
	if size == 0 || size > MaxHeaderBytes {
		return f, 0, damaged(fmt.Sprintf("its header would be %d bytes long", size))
	}
	body := make([]byte, size)
	if err := readFull(r, body, prefixSize); err != nil {
		return f, 0, err
	}
	if err := json.Unmarshal(body, &f); err != nil {
		return f, 0, damaged("its header is not readable: " + domain.Clip(err.Error(), 80))
	}
	if why := f.check(); why != "" {
		return f, 0, damaged(why)
	}
	again, err := json.Marshal(f)
	if err != nil || !bytes.Equal(again, body) { // doubled or unknown keys, other spellings
		return f, 0, damaged("its header is not in the form that packing writes")
	}
	return f, prefixSize + int64(size), nil
}

// check says what makes the facts impossible, or "".
func (f Facts) check() string {
	n := f.Features()
	if f.Predicts != 0 || f.Segment != 0 {
		if why := f.checkText(); why != "" {
			return why
		}
	}
	if why := f.checkForm(); why != "" {
		return why
	}
	switch {
	case f.Samples < 1 || f.Samples > MaxRows || f.Heldout < 0 || f.Heldout > MaxRows:
		return fmt.Sprintf("%d training and %d held-out rows", f.Samples, f.Heldout)
	case n < 1 || n >= MaxColumns || len(f.Mean) != n || len(f.Std) != n:
		return fmt.Sprintf("%d columns with %d means and %d deviations", n, len(f.Mean), len(f.Std))
	case f.Predicts == 0 && (f.Samples+f.Heldout)*n > MaxCells:
		return fmt.Sprintf("%d rows of %d columns", f.Samples+f.Heldout, n)
	case !f.Regression() && len(f.Classes) < 2 || len(f.Classes) > MaxClasses:
		return fmt.Sprintf("%d classes", len(f.Classes))
	case f.Block != f.block():
		return fmt.Sprintf("a shuffle block of %d rows", f.Block)
	case !(f.Holdout >= 0 && f.Holdout < 1):
		return fmt.Sprintf("a held-out fraction of %v", f.Holdout)
	}
	for i := range n {
		if math.IsNaN(f.Mean[i]) || math.IsInf(f.Mean[i], 0) || !(f.Std[i] > 0) || math.IsInf(f.Std[i], 0) {
			return fmt.Sprintf("column %d has mean %v and deviation %v", i+1, f.Mean[i], f.Std[i])
		}
	}
	tooLong := func(s string) bool { return len(s) > MaxNameBytes }
	if slices.ContainsFunc(f.Classes, tooLong) || slices.ContainsFunc(f.Columns, tooLong) || tooLong(f.Label) {
		return fmt.Sprintf("a name longer than %d bytes", MaxNameBytes)
	}
	return ""
}

// checkForm says what contradicts itself in what only some data sets have, or "".
func (f Facts) checkForm() string {
	switch {
	case f.Task != "" && !f.Regression():
		return fmt.Sprintf("the task %q", domain.Clip(f.Task, 40))
	case f.Regression() && (f.Classes == nil || len(f.Classes) > 0 || f.Predicts != 0 || f.Bytes):
		return "numbers to predict beside classes"
	case f.Regression() && (!(f.TargetStd > 0) || math.IsInf(f.TargetStd, 0) || math.IsNaN(f.TargetMean) || math.IsInf(f.TargetMean, 0)):
		return fmt.Sprintf("targets with mean %v and deviation %v", f.TargetMean, f.TargetStd)
	case !f.Regression() && (f.TargetMean != 0 || f.TargetStd != 0):
		return "targets of a classifier"
	case f.Bytes && f.Predicts != 0, f.Shape != nil && f.Predicts != 0:
		return "pictures of text"
	case f.Shape == nil:
		return ""
	case len(f.Shape) != 3:
		return fmt.Sprintf("a shape of %d numbers", len(f.Shape))
	}
	for _, n := range f.Shape {
		if n < 1 || n >= MaxColumns {
			return fmt.Sprintf("a side of %d", n)
		}
	}
	if size := f.Shape[0] * f.Shape[1] * f.Shape[2]; size != f.Features() { // below 2^48
		return fmt.Sprintf("pictures of %d values in rows of %d", size, f.Features())
	}
	return ""
}

func damaged(why string) error {
	return domain.Integrity(opOpen, "not a packed data set: "+why, "submit the run again, so that its data is packed anew")
}
