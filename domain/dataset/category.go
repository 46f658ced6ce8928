package dataset

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"

	"tensorturn/domain"
)

// role says what becomes of a column of the file.
type role uint8

const (
	roleNumber role = iota
	roleWords
	roleIgnored
	roleLabel
)

// missingWord is the category of a value that is missing: that it is may tell something.
const missingWord = "(missing)"

// wordSign stands between a column's name and a word of it in the name of a feature.
const wordSign = " = "

// vocabulary numbers the words of one column by their appearance.
type vocabulary struct {
	index map[string]int // looked up, never ranged over
	names []string
}

func (v *vocabulary) place(s string) (int, error) {
	if _, kind := number(s); kind == isMissing {
		s = missingWord
	}
	if i, ok := v.index[s]; ok {
		return i, nil
	}
	if len(s) > MaxNameBytes/2 { // the column's name comes before it
		return 0, fmt.Errorf("the word is longer than %d bytes", MaxNameBytes/2)
	}
	if len(v.names) >= MaxCategories {
		return 0, fmt.Errorf("more than %d different words", MaxCategories)
	}
	s = strings.Clone(s) // the row's memory is the whole line
	v.index[s] = len(v.names)
	v.names = append(v.names, s)
	return len(v.names) - 1, nil
}

// assignRoles settles what every column is for; place gives columns by name.
func (p *parser) assignRoles(place map[string]int) error {
	p.roles, p.words = make([]role, p.width), make([]*vocabulary, p.width)
	p.roles[p.label] = roleLabel
	for _, list := range []struct {
		key   string
		names []string
		role  role
	}{{"data.categories", p.opt.Categories, roleWords}, {"data.ignore", p.opt.Ignore, roleIgnored}} {
		for _, name := range list.names {
			i, ok := place[name]
			switch {
			case !ok:
				return domain.Invalid(opRead, fmt.Sprintf("%s names %q, and no column is named so", list.key, domain.Clip(name, 80)),
					fmt.Sprintf("the nearest name is %q", domain.Clip(nearest(name, p.named), 80)))
			case p.roles[i] != roleNumber:
				return domain.Invalid(opRead, fmt.Sprintf("%s names %q, which is the label or named twice", list.key, domain.Clip(name, 80)), "name it once")
			}
			p.roles[i] = list.role
			if list.role == roleWords {
				p.words[i] = &vocabulary{index: map[string]int{}}
			}
		}
	}
	for i, r := range p.roles {
		if r == roleNumber || r == roleWords {
			p.raw++
			p.table.Columns = append(p.table.Columns, p.named[i])
		}
	}
	if p.raw == 0 {
		return domain.Invalid(opRead, "no column is left to learn from", "ignore fewer columns")
	}
	return nil
}

// checkWordNames refuses a column that is named like a word of another one: a row of the file could not be told from its features.
func (p *parser) checkWordNames() error {
	for i, r := range p.roles {
		for _, c := range p.opt.Categories {
			if (r == roleNumber || r == roleWords) && strings.HasPrefix(p.named[i], c+wordSign) {
				return domain.Invalid(opRead, fmt.Sprintf("the column %q is named like a word of the column %q", domain.Clip(p.named[i], 80), domain.Clip(c, 80)), "rename one of them")
			}
		}
	}
	return nil
}

// nearest is the name with the smallest edit distance.
func nearest(wanted string, names []string) string {
	best, distance := "", math.MaxInt
	for _, name := range names[:min(len(names), maxSuggestions)] {
		if d := levenshtein.ComputeDistance(domain.Clip(name, MaxNameBytes), domain.Clip(wanted, MaxNameBytes)); d < distance {
			best, distance = name, d
		}
	}
	return best
}

// spread turns each column of words into one column for each word, sorted, of 0 and 1; missing numbers keep their place.
func (p *parser) spread() error {
	t := p.table
	if !slices.Contains(p.roles, roleWords) {
		return nil
	}
	type column struct {
		order []int // of words: the place of each word among the sorted ones
	}
	var columns []column
	var names []string
	for i, r := range p.roles {
		switch r {
		case roleNumber:
			names, columns = append(names, p.named[i]), append(columns, column{})
		case roleWords:
			sorted := slices.Sorted(slices.Values(p.words[i].names))
			order := make([]int, len(sorted))
			for at, w := range sorted {
				order[p.words[i].index[w]] = at
				names = append(names, p.named[i]+wordSign+w)
			}
			columns = append(columns, column{order})
		}
	}
	if len(names) >= MaxColumns || t.Rows()*len(names) > MaxCells {
		return domain.Invalid(opRead, fmt.Sprintf("the words of data.categories make %d columns of %d rows, more than %d values", len(names), t.Rows(), MaxCells), "list fewer columns in data.categories")
	}
	values := make([]float64, 0, t.Rows()*len(names))
	missing, next := make([]int, 0, len(t.Missing)), 0
	for at := 0; at < len(t.Values); at += p.raw {
		for j, c := range columns {
			v := t.Values[at+j]
			if c.order != nil {
				from := len(values)
				values = values[:from+len(c.order)]
				values[from+c.order[int(v)]] = 1
				continue
			}
			if next < len(t.Missing) && t.Missing[next] == at+j {
				missing = append(missing, len(values))
				next++
			}
			values = append(values, v)
		}
	}
	t.Columns, t.Values, t.Missing = names, values, missing
	if len(missing) == 0 {
		t.Missing = nil
	}
	if err := checkNames(names); err != nil {
		return err
	}
	return p.checkWordNames()
}

// checkNames refuses names that are too long or stand twice: "a = b" may be a column of its own.
func checkNames(names []string) error {
	sorted := slices.Sorted(slices.Values(names))
	for i, n := range sorted {
		switch {
		case len(n) > MaxNameBytes:
			return domain.Invalid(opRead, fmt.Sprintf("the column %q would have a name longer than %d bytes", domain.Clip(n, 80), MaxNameBytes), "shorten the column's name or its words")
		case i > 0 && sorted[i-1] == n:
			return domain.Invalid(opRead, fmt.Sprintf("two columns would be named %q", domain.Clip(n, 80)), "rename one of them")
		}
	}
	return nil
}
