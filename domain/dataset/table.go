package dataset

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"tensorturn/domain"
)

// LabelLast is the label option that takes the last column, with or without a header row. It is the default.
const LabelLast = "last"

// LabelFirst takes the first column, in the same way.
const LabelFirst = "first"

// CSVOptions says how to read a table.
type CSVOptions struct {
	Label      string // name of the label column, LabelFirst or LabelLast; empty is LabelLast
	Regression bool   // labels are numbers to be predicted, not classes
	// FillMean puts the mean of a column's other values where one is missing, instead of refusing the file. Pack knows which
	// rows are trained on and takes the mean of those alone.
	FillMean   bool
	Categories []string // columns of words: each word becomes a column of 0 and 1
	Ignore     []string // columns to leave out
	MaxRows    int      // 0 is the package's MaxRows
	MaxColumns int      // features and label; 0 is the package's MaxColumns
}

// Table is a parsed data set in file order.
type Table struct {
	Columns []string  // names of the features; "column 3" where the file has no header row
	Label   string    // name of the label column
	Classes []string  // distinct labels: by value if all are numbers, else by text
	Values  []float64 // rows × len(Columns), row-major, all finite and within float32's range
	Labels  []int     // index into Classes, one a row; nil for a regression
	Targets []float64 // of a regression: the label of each row
	Missing []int     // places in Values that are missing and wait for their column's mean, ascending
	Shape   []int     // [channels, height, width] of a row that is a picture, nil otherwise
}

// Rows is the number of samples.
func (t *Table) Rows() int {
	if t.Targets != nil {
		return len(t.Targets)
	}
	return len(t.Labels)
}

// ParseCSV reads a comma-separated table, plain or gzip (told by its first two bytes). Blank lines are skipped. The
// first row is a header if a feature of it is no number, or if its label is no number while the second row's is. Labels
// are text or numbers. Every refusal is domain.KindInvalid and names line and column where there is one.
func ParseCSV(r io.Reader, o CSVOptions) (*Table, error) {
	if o.Label == "" {
		o.Label = LabelLast
	}
	if o.MaxRows <= 0 || o.MaxRows > MaxRows {
		o.MaxRows = MaxRows
	}
	if o.MaxColumns <= 0 || o.MaxColumns > MaxColumns {
		o.MaxColumns = MaxColumns
	}
	rows, err := newRowReader(r)
	if err != nil {
		return nil, err
	}
	p := &parser{rows: rows, opt: o, table: &Table{}, index: map[string]int{}}
	if o.Regression {
		p.table.Targets = []float64{}
	}
	if err := p.readAll(); err != nil {
		return nil, err
	}
	return p.finish()
}

// parser holds what one ParseCSV knows so far.
type parser struct {
	rows   *rowReader
	opt    CSVOptions
	table  *Table
	width  int            // columns of every row
	first  int            // line that fixed the width
	label  int            // index of the label column
	header bool           // the first row was a header
	names  []string       // distinct labels in order of appearance
	index  map[string]int // their place in names; looked up, never ranged over
	roles  []role         // of each column of the file
	words  []*vocabulary  // of each column of the file that holds words, nil for others
	named  []string       // names of all columns of the file
	raw    int            // values of a row before words are spread
}

// readAll reads the rows. The first one waits for the second, which helps to tell whether it is a header.
func (p *parser) readAll() error {
	head, err := p.rows.next()
	if errors.Is(err, io.EOF) {
		return domain.Invalid(opRead, "the file is empty", "give a CSV file with one sample a line")
	}
	if err != nil {
		return err
	}
	head = append([]string(nil), head...)
	p.first, p.width = p.rows.line, len(head)
	if err := p.checkWidth(head); err != nil {
		return err
	}
	second, err := p.rows.next()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := p.takeHead(head, second); err != nil {
		return err
	}
	for line := second; err == nil; line, err = p.rows.next() {
		if rowErr := p.addRow(line, p.rows.line); rowErr != nil {
			return rowErr
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func (p *parser) checkWidth(head []string) error {
	if p.width > p.opt.MaxColumns {
		return domain.Invalid(opRead, fmt.Sprintf("%d columns, at most %d are allowed", p.width, p.opt.MaxColumns), "give a narrower table")
	}
	if p.width >= 2 {
		return nil
	}
	next := "give at least one feature column and a label column"
	for _, sep := range []string{";", "\t", "|"} {
		if strings.Contains(head[0], sep) {
			next = fmt.Sprintf("separate columns by commas; the line holds %q", sep)
		}
	}
	return domain.Invalid(opRead, fmt.Sprintf("line %d has one column only", p.first), next)
}

// addRow appends one sample.
func (p *parser) addRow(row []string, line int) error {
	if len(row) != p.width {
		return domain.Invalid(opRead, fmt.Sprintf("line %d has %d columns, line %d has %d", line, len(row), p.first, p.width),
			"give every line the same number of columns")
	}
	t := p.table
	if t.Rows() >= p.opt.MaxRows {
		return domain.Invalid(opRead, fmt.Sprintf("line %d: more than %d samples", line, p.opt.MaxRows), "give fewer rows")
	}
	if (t.Rows()+1)*p.raw > MaxCells {
		return domain.Invalid(opRead, fmt.Sprintf("line %d: more than %d values", line, MaxCells), "give fewer rows or columns")
	}
	for i, s := range row {
		if err := p.addCell(i, s, line); err != nil {
			return err
		}
	}
	return p.addLabel(row[p.label], line)
}

// addCell appends one feature.
func (p *parser) addCell(i int, s string, line int) error {
	t := p.table
	switch p.roles[i] {
	case roleLabel, roleIgnored:
		return nil
	case roleWords:
		w, err := p.words[i].place(s)
		if err != nil {
			return domain.Invalid(opRead, fmt.Sprintf("%s: %s", p.place(line, i), err), "use the column as a label or ignore it: data.ignore")
		}
		t.Values = append(t.Values, float64(w))
		return nil
	}
	v, kind := number(s)
	switch {
	case kind == isValue:
	case kind == isMissing && p.opt.FillMean, kind == isNotFinite && p.opt.FillMean && isNaN(s):
		t.Missing = append(t.Missing, len(t.Values))
	default:
		next := "give a finite number in every feature column, or remove the column or line"
		switch kind {
		case isText:
			next = "list a column of words in data.categories, or leave it out with data.ignore"
		case isMissing:
			next = "set data.missing to mean, or remove the line"
		}
		return domain.Invalid(opRead, fmt.Sprintf("%s: %s", p.place(line, i), kind.why(s)), next)
	}
	t.Values = append(t.Values, v)
	return nil
}

// place says where in the file a cell stands. A name that only repeats the column's number is left out.
func (p *parser) place(line, i int) string {
	at := fmt.Sprintf("column %d", i+1)
	if name := p.named[i]; name != at {
		at += " (" + name + ")"
	}
	return fmt.Sprintf("line %d, %s", line, at)
}
