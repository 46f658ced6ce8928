package dataset

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"tensorturn/domain"
)

// addLabel notes the label of the row just added, by order of appearance for now.
func (p *parser) addLabel(s string, line int) error {
	if s == "" {
		return domain.Invalid(opRead, p.place(line, p.label)+": the label is missing",
			"give every line a label, or remove the line")
	}
	v, kind := number(s)
	if p.opt.Regression {
		if kind != isValue {
			return domain.Invalid(opRead, fmt.Sprintf("%s: the label: %s", p.place(line, p.label), kind.why(s)),
				"give every line a finite number to predict, or leave data.task out to predict classes")
		}
		p.table.Targets = append(p.table.Targets, v)
		return nil
	}
	if kind == isNotFinite {
		return domain.Invalid(opRead, fmt.Sprintf("%s: the label %s", p.place(line, p.label), kind.why(s)),
			"give every line a label, or remove the line")
	}
	i, ok := p.index[s]
	if !ok {
		if len(s) > MaxNameBytes {
			return domain.Invalid(opRead, fmt.Sprintf("line %d: the label is longer than %d bytes", line, MaxNameBytes), "shorten it")
		}
		if len(p.names) >= MaxClasses {
			return domain.Invalid(opRead, fmt.Sprintf("line %d: column %q holds more than %d different labels", line, p.table.Label, MaxClasses),
				"set data.task to regression to predict numbers, or name the label column with data.label")
		}
		s = strings.Clone(s) // the row's memory is the whole line
		i = len(p.names)
		p.names, p.index[s] = append(p.names, s), i
	}
	p.table.Labels = append(p.table.Labels, i)
	return nil
}

// finish checks the whole and sorts the classes.
func (p *parser) finish() (*Table, error) {
	t := p.table
	switch {
	case t.Rows() == 0:
		return nil, domain.Invalid(opRead, "the file has a header row and no samples", "add one line a sample")
	case t.Rows() == 1:
		return nil, domain.Invalid(opRead, "the file has one sample only", "a classifier needs samples of at least two classes")
	}
	if p.opt.Regression && !slices.ContainsFunc(t.Targets, func(v float64) bool { return v != t.Targets[0] }) {
		return nil, domain.Invalid(opRead, fmt.Sprintf("all %d samples have the label %v", t.Rows(), t.Targets[0]), "name the column to predict with data.label")
	}
	if err := p.spread(); err != nil || p.opt.Regression {
		return t, err
	}
	classes, place := sortClasses(p.names)
	for i, l := range t.Labels {
		t.Labels[i] = place[l]
	}
	t.Classes = classes
	if len(classes) == 1 {
		return nil, domain.Invalid(opRead, fmt.Sprintf("all %d samples have the label %q", t.Rows(), classes[0]),
			"a classifier needs at least two classes; name the label column with data.label")
	}
	if continuous(classes, t.Rows()) {
		return nil, domain.Invalid(opRead, fmt.Sprintf("label column %q holds %d different fractions in %d samples", t.Label, len(classes), t.Rows()),
			"set data.task to regression to predict numbers, or name the label column with data.label")
	}
	return t, nil
}

// sortClasses gives the classes in order and the place of each name in it. If every name is a finite number they are
// compared and written as numbers, so that "1" and "1.0" are one class and 10 follows 9.
func sortClasses(names []string) (classes []string, place []int) {
	values := make([]float64, len(names))
	numeric := true
	for i, s := range names {
		v, kind := number(s)
		values[i] = v
		numeric = numeric && kind == isValue
	}
	order := make([]int, len(names))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if numeric && values[a] != values[b] {
			if values[a] < values[b] {
				return -1
			}
			return 1
		}
		if numeric {
			return 0
		}
		return strings.Compare(names[a], names[b])
	})
	place = make([]int, len(names))
	for k, i := range order {
		if k == 0 || !numeric || values[i] != values[order[k-1]] {
			name := names[i]
			if numeric {
				name = strconv.FormatFloat(values[i]+0, 'f', -1, 64) // +0 turns -0 into 0
			}
			classes = append(classes, name)
		}
		place[i] = len(classes) - 1
	}
	return classes, place
}

// continuous reports labels that are measurements: numbers with fractions, most of them different.
func continuous(classes []string, rows int) bool {
	if len(classes)*2 <= rows {
		return false
	}
	for _, c := range classes {
		if v, kind := number(c); kind == isValue && v != math.Trunc(v) {
			return true
		}
	}
	return false
}
