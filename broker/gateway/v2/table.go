package v2

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"tensorturn/broker/inference"
	"tensorturn/domain"
	"tensorturn/domain/dataset"
)

// textType is the datatype of texts: as rows of the table that was trained on, with words and gaps.
const textType = "BYTES"

// Limits of rows as they stand in the table.
const (
	maxCell  = dataset.MaxNameBytes // bytes of one value; no word of a table is longer
	maxWide  = 1 << 18              // features that the rows of a small body may become: 1 MiB, whatever a word becomes
	cellHead = 4                    // bytes before each value of BYTES that say its length
)

// asTable reports rows as they stand in the table, which BYTES always are. Numbers are those where some column has categories
// and the shape is the table's: as wide as the features they are features.
func (in *input) asTable(facts *inference.Facts) bool {
	form := facts.Form
	if form == nil || in.datatype == textType {
		return form != nil
	}
	if !form.Spread() || in.dims == 0 || len(form.Columns) == len(facts.Columns) || in.shape[in.dims-1] != int64(len(form.Columns)) {
		return false
	}
	return in.size < 0 && types[in.datatype].text != nil || numeralOf(in.datatype) != nil
}

// taken says which shapes a model takes, for people.
func taken(facts *inference.Facts, datatype string) string {
	features := fmt.Sprintf("[-1 %d]", len(facts.Columns))
	switch {
	case facts.Form == nil:
		return features
	case !facts.Form.Spread():
		return features + ": " + columnNames(facts.Form)
	case datatype == textType:
		return fmt.Sprintf("[-1 %d]: %s", len(facts.Form.Columns), columnNames(facts.Form))
	}
	return fmt.Sprintf("%s of numbers with a column for each word, or [-1 %d] as in the table: %s", features, len(facts.Form.Columns), columnNames(facts.Form))
}

// namesTold bounds the columns that a refusal lists.
const namesTold = 20

func columnNames(f *dataset.Form) string {
	var names []string
	for _, c := range f.Columns[:min(len(f.Columns), namesTold)] {
		names = append(names, domain.Clip(c.Name, 40))
	}
	if n := len(f.Columns) - len(names); n > 0 {
		names = append(names, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(names, ", ")
}

// tableRows reads rows as they stand in the table and makes features [rows, features] of them.
func (in *input) tableRows(facts *inference.Facts, behind []byte) ([]float32, int, *fail) {
	form := facts.Form
	n, f := in.count(facts, len(form.Columns))
	if f != nil {
		return nil, 0, f
	}
	cells, wide := n*len(form.Columns), n*form.Features()
	if f := in.holdsCells(cells, behind); f != nil {
		return nil, 0, f
	}
	if len(in.data)+len(behind) <= smallBody && wide > maxWide {
		return nil, 0, &fail{code: 413, why: fmt.Sprintf("input %q has %d rows, at most %d as in the table go into one request of this model", in.name, n, max(1, maxWide/form.Features()))}
	}
	t := &table{in: in, form: form, out: make([]float32, wide)}
	switch {
	case in.size < 0:
		f = t.fromText(cells)
	case in.datatype == textType:
		f = t.fromTexts(cells, behind)
	default:
		f = t.fromNumbers(cells, behind)
	}
	return t.out, n, f
}

// holdsCells checks that as many values can be there as the shape says, before memory is made for them.
func (in *input) holdsCells(cells int, behind []byte) *fail {
	if in.datatype != textType {
		return in.holds(types[in.datatype], cells, behind)
	}
	least := cells * cellHead
	if in.size < 0 {
		behind, least = in.data, 2*cells+1 // as text a value and what parts it from the next
	}
	if len(behind) < least {
		return invalid(fmt.Sprintf("input %q has fewer than the %d values of its shape %v", in.name, cells, in.shape[:in.dims]))
	}
	return nil
}

// table makes features of cells.
type table struct {
	in   *input
	form *dataset.Form
	out  []float32
}

// set takes one cell; a missing one is "".
func (t *table) set(at int, text string) *fail {
	width, features := len(t.form.Columns), t.form.Features()
	row := at / width
	if err := t.form.Set(t.out[row*features:(row+1)*features], at%width, text); err != nil {
		return invalid(fmt.Sprintf("input %q: row %d, %v", t.in.name, row, err))
	}
	return nil
}

// fromText reads JSON: texts, numbers and null, whichever the column has.
func (t *table) fromText(cells int) *fail {
	r := textReader{scanner: scanner{b: t.in.data}, in: t.in, want: cells}
	r.value = func(at int) *fail {
		switch quoted := r.peek() == '"'; {
		case quoted && t.in.datatype != textType:
			return invalid(fmt.Sprintf("input %q: value %d is a text: rows with words have the datatype BYTES", t.in.name, at))
		case quoted:
			text, f := r.text(maxCell)
			if f != nil {
				return invalid(fmt.Sprintf("input %q: value %d is longer than %d bytes, or has a wrong escape", t.in.name, at, maxCell))
			}
			return t.set(at, text)
		case r.word("null"):
			return t.set(at, "")
		}
		text, _, f := r.number()
		if f != nil || len(text) > maxCell {
			return invalid(fmt.Sprintf("input %q: value %d is no text, number or null", t.in.name, at))
		}
		return t.set(at, string(text))
	}
	return r.all()
}

// fromTexts reads BYTES as the extension has them: the length in four bytes, little-endian, then as many.
func (t *table) fromTexts(cells int, b []byte) *fail {
	for at := range cells {
		if len(b) < cellHead {
			return invalid(fmt.Sprintf("input %q ends within value %d", t.in.name, at))
		}
		size := binary.LittleEndian.Uint32(b)
		b = b[cellHead:]
		if size > maxCell {
			return invalid(fmt.Sprintf("input %q: value %d is %d bytes long, at most %d are allowed", t.in.name, at, size, maxCell))
		}
		if int(size) > len(b) {
			return invalid(fmt.Sprintf("input %q ends within value %d", t.in.name, at))
		}
		if f := t.set(at, strings.ToValidUTF8(string(b[:size]), "\ufffd")); f != nil {
			return f
		}
		b = b[size:]
	}
	if len(b) > 0 {
		return invalid(fmt.Sprintf("input %q: %d bytes follow its last value", t.in.name, len(b)))
	}
	return nil
}

// fromNumbers reads a tensor of numbers. Each is written as a table would have it, so that 3 is the word "3" where the column has
// words.
func (t *table) fromNumbers(cells int, b []byte) *fail {
	size, numeral := types[t.in.datatype].size, numeralOf(t.in.datatype)
	for at := range cells {
		if f := t.set(at, numeral(b[at*size:(at+1)*size])); f != nil {
			return f
		}
	}
	return nil
}

// numeralOf gives what writes an element of a datatype as a table has it, nil where there is none. NaN is a gap.
func numeralOf(datatype string) func(b []byte) string {
	real := func(v float64, bits int) string {
		if math.IsNaN(v) {
			return ""
		}
		return strconv.FormatFloat(v, 'f', -1, bits)
	}
	le := binary.LittleEndian
	switch datatype {
	case "FP32":
		return func(b []byte) string { return real(float64(math.Float32frombits(le.Uint32(b))), 32) }
	case "FP64":
		return func(b []byte) string { return real(math.Float64frombits(le.Uint64(b)), 64) }
	case "INT32":
		return func(b []byte) string { return strconv.FormatInt(int64(int32(le.Uint32(b))), 10) }
	case "INT64":
		return func(b []byte) string { return strconv.FormatInt(int64(le.Uint64(b)), 10) }
	}
	return nil
}
