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

// CSVOptions says how to read a table.
type CSVOptions struct {
	Label      string // name of the label column, or LabelLast; empty is LabelLast
	MaxRows    int    // 0 is the package's MaxRows
	MaxColumns int    // features and label; 0 is the package's MaxColumns
}

// Table is a parsed data set in file order.
type Table struct {
	Columns []string  // names of the features; "column 3" where the file has no header row
	Label   string    // name of the label column
	Classes []string  // distinct labels: by value if all are numbers, else by text
	Values  []float64 // rows × len(Columns), row-major, all finite and within float32's range
	Labels  []int     // index into Classes, one a row
}

// Rows is the number of samples.
func (t *Table) Rows() int { return len(t.Labels) }

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
	if len(t.Labels) >= p.opt.MaxRows {
		return domain.Invalid(opRead, fmt.Sprintf("line %d: more than %d samples", line, p.opt.MaxRows), "give fewer rows")
	}
	if (len(t.Labels)+1)*(p.width-1) > MaxCells {
		return domain.Invalid(opRead, fmt.Sprintf("line %d: more than %d values", line, MaxCells), "give fewer rows or columns")
	}
	for i, s := range row {
		if i == p.label {
			continue
		}
		v, kind := number(s)
		if kind != isValue {
			return domain.Invalid(opRead, fmt.Sprintf("line %d, column %d (%s): %s", line, i+1, p.columnName(i), kind.why(s)),
				"give a finite number in every feature column, or remove the column or line")
		}
		t.Values = append(t.Values, v)
	}
	return p.addLabel(row[p.label], line)
}

// columnName is the name of column i of the file.
func (p *parser) columnName(i int) string {
	if i > p.label {
		i--
	}
	return p.table.Columns[i]
}
