package dataset

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// Form is how a row of a table, as it stands in the file without label and ignored columns, becomes a row of features. It
// does to one row what ParseCSV and Pack did to all of them: a word becomes its column of 1, a gap the mean. It is read out
// of the facts and the spec, so that data sets packed before there was a Form have one too. It never changes.
type Form struct {
	Columns []FileColumn // in the file's order
	Fills   bool         // a missing number becomes its column's mean; otherwise it is refused, as in the file

	features int
}

// FileColumn is one column of the file.
type FileColumn struct {
	Name  string
	Words []string // of a column of categories, in the order of their features; nil for a column of numbers
	At    int      // its first feature
	Mean  float64  // of a column of numbers in the training part, which is what its gaps were filled with

	place map[string]int // of Words; looked up, never ranged over
}

// FormOf reads the form of a table. It is nil for text, for IDX files and for facts that do not fit the spec.
func FormOf(f Facts, d run.Data) *Form {
	if f.Predicts > 0 || f.Bytes || d.Format != "" && d.Format != run.FormatCSV {
		return nil
	}
	form := &Form{Fills: d.Missing == run.MissingMean, features: f.Features()}
	left := slices.Clone(d.Categories)
	for at := 0; at < len(f.Columns); {
		i := wordsOf(f.Columns[at], left)
		if i < 0 {
			form.Columns = append(form.Columns, FileColumn{Name: f.Columns[at], At: at, Mean: f.Mean[at]})
			at++
			continue
		}
		c := FileColumn{Name: left[i], At: at, place: map[string]int{}}
		for ; at < len(f.Columns); at++ {
			word, ok := strings.CutPrefix(f.Columns[at], c.Name+wordSign)
			if !ok {
				break
			}
			c.place[word] = len(c.Words)
			c.Words = append(c.Words, word)
		}
		form.Columns = append(form.Columns, c)
		left = slices.Delete(left, i, i+1)
	}
	if len(left) > 0 {
		return nil
	}
	return form
}

// wordsOf says which column of categories a feature belongs to, by the longest name that fits; -1 for none.
func wordsOf(feature string, categories []string) int {
	best := -1
	for i, c := range categories {
		if strings.HasPrefix(feature, c+wordSign) && (best < 0 || len(c) > len(categories[best])) {
			best = i
		}
	}
	return best
}

// Features is the length of a row that Set writes.
func (f *Form) Features() int { return f.features }

// Spread reports whether a row of the file is not a row of features: it has columns of categories.
func (f *Form) Spread() bool {
	return slices.ContainsFunc(f.Columns, func(c FileColumn) bool { return c.Words != nil })
}

// Set writes the cell of one column into row, which is Features long and all zeros where nothing was set. An empty text is a
// missing value, as the marks are that a file may have for one. The error says what is wrong with the cell, without a place.
func (f *Form) Set(row []float32, column int, text string) error {
	c := &f.Columns[column]
	if c.Words != nil {
		return c.setWord(row, text)
	}
	text = strings.TrimSpace(text)
	v, kind := number(text)
	switch {
	case kind == isValue:
		row[c.At] = float32(v)
		return nil
	case kind == isMissing, kind == isNotFinite && isNaN(text):
		if f.Fills {
			row[c.At] = float32(c.Mean)
			return nil
		}
		return fmt.Errorf("column %q: %s, and the run was trained without data.missing", domain.Clip(c.Name, 80), kind.why(text))
	}
	return fmt.Errorf("column %q: %s", domain.Clip(c.Name, 80), kind.why(text))
}

// setWord marks a word. What is written otherwise in the file and in a request, as 1 and 1.0 or with spaces around, is looked for
// when it is not found as it stands.
func (c *FileColumn) setWord(row []float32, text string) error {
	for _, s := range []string{text, strings.TrimSpace(text), plainNumber(text)} {
		if _, kind := number(s); kind == isMissing {
			s = missingWord
		}
		if i, ok := c.place[s]; ok {
			row[c.At+i] = 1
			return nil
		}
	}
	if _, kind := number(strings.TrimSpace(text)); kind == isMissing {
		return fmt.Errorf("column %q: the value is missing, and none was in the training data; it knows %s", domain.Clip(c.Name, 80), c.known())
	}
	return fmt.Errorf("column %q: the word %q was not in the training data; it knows %s", domain.Clip(c.Name, 80), domain.Clip(text, 40), c.known())
}

// plainNumber writes a whole number without fraction: a data frame with a gap makes 3.0 of 3. Other texts stay.
func plainNumber(text string) string {
	v, kind := number(strings.TrimSpace(text))
	if kind != isValue || v != math.Trunc(v) {
		return text
	}
	return strconv.FormatFloat(v+0, 'f', -1, 64)
}

// knownWords bounds the words that a refusal lists.
const knownWords = 20

func (c *FileColumn) known() string {
	var out []string
	for _, w := range c.Words[:min(len(c.Words), knownWords)] {
		out = append(out, strconv.Quote(domain.Clip(w, 40)))
	}
	if n := len(c.Words) - len(out); n > 0 {
		out = append(out, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(out, ", ")
}

// Fill puts a column's mean where a row of features has NaN, in whole rows, and reports nothing: what has no mean stays NaN,
// which no model takes.
func (f *Form) Fill(features []float32) {
	if !f.Fills {
		return
	}
	for from := 0; from < len(features); from += f.features {
		for i := range f.Columns {
			c := &f.Columns[i]
			if v := &features[from+c.At]; c.Words == nil && *v != *v {
				*v = float32(c.Mean)
			}
		}
	}
}
