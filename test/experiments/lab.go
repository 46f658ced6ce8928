package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// lab is what one experiment works with. What it prints goes to people at once and to the experiment's block.
type lab struct {
	ctx   context.Context
	quick bool
	// plant names a fault that a test plants to see the experiment fail; "" otherwise.
	plant string
	out   io.Writer
	bench *bench // of the language experiments: they share it

	text   strings.Builder
	err    error
	missed int
}

// do runs one experiment and gives its block.
func (l *lab) do(e experiment) (text string, ok bool) {
	began := time.Now()
	l.printf("## %s: %s\n\n", e.id, e.title)
	l.bench.reused = false
	l.err = e.run(l)
	if l.err != nil {
		l.printf("\ncould not be measured: %v\n", l.err)
	}
	quick := ""
	if l.quick {
		quick = ", quick: too few repetitions for a claim"
	}
	if l.bench.reused {
		quick += ", with what earlier tries had trained"
	}
	l.printf("\n%s, %.0f s, %s%s\n\n", time.Now().Format(time.DateOnly), time.Since(began).Seconds(), machine(), quick)
	return l.text.String(), l.err == nil && l.missed == 0
}

func (l *lab) printf(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	l.text.WriteString(s)
	fmt.Fprint(l.out, s) // a reader that is gone loses the table, not the experiment
}

// head begins a table, row adds to it. They are Markdown.
func (l *lab) head(cells ...string) {
	l.row(cells...)
	l.printf("|%s\n", strings.Repeat(" --- |", len(cells)))
}

func (l *lab) row(cells ...string) { l.printf("| %s |\n", strings.Join(cells, " | ")) }

// note is a line below a table.
func (l *lab) note(format string, args ...any) { l.printf("\n"+format+"\n", args...) }

// require states what must hold. One that does not fails the experiment, which goes on, so that the whole picture is seen.
func (l *lab) require(ok bool, format string, args ...any) {
	verdict := "holds"
	if !ok {
		verdict = "MISSED"
		l.missed++
	}
	l.printf("- %s: %s\n", verdict, fmt.Sprintf(format, args...))
}

// count is a number of repetitions: many, or few when the lab is quick.
func (l *lab) count(many, few int) int {
	if l.quick {
		return few
	}
	return many
}

const resultsHead = `# Results of the experiments

Written by ` + "`make experiments`" + `; each block is the last run of one experiment. What they measure and why: the reference
of each in its file here.

`

// rewrite puts an experiment's block into the file, in place of the one before or at its end.
func rewrite(path, id, text string) error {
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if len(old) == 0 {
		old = []byte(resultsHead)
	}
	begin, end := "<!-- "+id+" -->\n", "<!-- end of "+id+" -->\n"
	block := begin + text + end
	page := string(old)
	from, to := strings.Index(page, begin), strings.Index(page, end)
	switch {
	case from < 0:
		page += block
	case to < from:
		return fmt.Errorf("%s: the block of %s does not end", path, id)
	default:
		page = page[:from] + block + page[to+len(end):]
	}
	return os.WriteFile(path, []byte(page), 0o644)
}
