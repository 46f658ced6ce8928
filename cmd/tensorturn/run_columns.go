package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/dataset"
)

// Columns that a table's owner may not have meant to learn from.
const (
	manyWords = 100     // features that words become: more is mostly a name, an address or a date
	leastRows = 20      // of fewer rows, numbers are different by chance
	mostRows  = 1 << 20 // are looked at for an id: sets of more would take memory for a warning
)

// wideColumns warns of a column whose words become many features, and of columns that look like the number of a row.
func wideColumns(f *dataset.Form, t *dataset.Table) []string {
	if f == nil || t.Shape != nil {
		return nil
	}
	var out []string
	words, widest := 0, dataset.FileColumn{}
	for _, c := range f.Columns {
		words += len(c.Words)
		if len(c.Words) > len(widest.Words) {
			widest = c
		}
	}
	if words > manyWords {
		out = append(out, fmt.Sprintf("the words of data.categories become %d features, %d of them column %q: if it names rows more than kinds of them, leave it out with data.ignore",
			words, len(widest.Words), domain.Clip(widest.Name, 80)))
	}
	var ids []string
	for _, c := range f.Columns {
		if each(c, t) {
			ids = append(ids, fmt.Sprintf("%q", domain.Clip(c.Name, 80)))
		}
	}
	if more := len(ids) - maxTroubles; more > 0 {
		ids = append(ids[:maxTroubles], fmt.Sprintf("and %d more", more))
	}
	if len(ids) > 0 {
		out = append(out, fmt.Sprintf("different in every row, as the number of a row is: column %s; nothing of use is learnt from such a number: leave it out with data.ignore", strings.Join(ids, ", ")))
	}
	return out
}

// each reports a column with another word, or another whole number, in every row. Measurements with a fraction differ by nature.
func each(c dataset.FileColumn, t *dataset.Table) bool {
	rows, width := t.Rows(), len(t.Columns)
	if rows < leastRows || rows > mostRows {
		return false
	}
	if c.Words != nil {
		return len(c.Words) == rows
	}
	seen := make(map[float64]bool) // looked up, never ranged over
	for i := range rows {
		v := t.Values[i*width+c.At]
		if v != math.Trunc(v) || seen[v] {
			return false
		}
		seen[v] = true
	}
	return !slices.ContainsFunc(t.Missing, func(at int) bool { return at%width == c.At }) // an id has no gaps
}
