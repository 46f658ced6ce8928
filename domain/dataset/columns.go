package dataset

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tensorturn/domain"
)

// takeHead settles header and label column, and adds the first row if it is data.
func (p *parser) takeHead(head, second []string) error {
	p.label = p.width - 1
	if p.opt.Label == LabelFirst {
		p.label = 0
	}
	for i, s := range head {
		if _, kind := number(s); i != p.label && kind == isText {
			p.header = true
		}
	}
	p.header = p.header || len(p.opt.Categories) > 0 || len(p.opt.Ignore) > 0 // which are named by it
	if len(second) == p.width {
		_, above := number(head[p.label])
		_, below := number(second[p.label])
		p.header = p.header || above == isText && below == isValue
	}
	if p.opt.Label != LabelLast && p.opt.Label != LabelFirst {
		if err := p.findLabel(head); err != nil {
			return err
		}
	}
	if err := p.nameColumns(head); err != nil {
		return err
	}
	if p.header {
		return nil
	}
	return p.addRow(head, p.first)
}

// maxSuggestions bounds the columns that a misspelt label is compared with.
const maxSuggestions = 1024

// findLabel looks for the named label column in the first row. Naming one says that the first row is a header.
func (p *parser) findLabel(head []string) error {
	if i := slices.Index(head, p.opt.Label); i >= 0 {
		p.label, p.header = i, true
		return nil
	}
	best := nearest(p.opt.Label, head)
	why := fmt.Sprintf("no column is named %q", domain.Clip(p.opt.Label, 80))
	if !p.header {
		return domain.Invalid(opRead, why+": the file has no header row", `add a header row, or use label "last"`)
	}
	return domain.Invalid(opRead, why, fmt.Sprintf("the nearest name is %q; label \"last\" takes the last column", domain.Clip(best, 80)))
}

func (p *parser) nameColumns(head []string) error {
	seen := make(map[string]int, len(head))
	for i, name := range head {
		if !p.header || name == "" {
			name = "column " + strconv.Itoa(i+1)
		}
		if len(name) > MaxNameBytes {
			return domain.Invalid(opRead, fmt.Sprintf("line %d, column %d: the name is longer than %d bytes", p.first, i+1, MaxNameBytes), "shorten it")
		}
		if j, ok := seen[name]; ok {
			return domain.Invalid(opRead, fmt.Sprintf("columns %d and %d are both named %q", j+1, i+1, name), "give every column a name of its own")
		}
		seen[name] = i
		p.named = append(p.named, strings.Clone(name))
	}
	p.table.Label = p.named[p.label]
	return p.assignRoles(seen)
}
