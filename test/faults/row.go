package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"tensorturn/test/kit"
)

// row is one fault with what must be seen.
type row struct {
	id       int
	part     string
	fault    string
	expect   string
	mutation string // what makes it fail
	quick    bool   // in make test
	alone    bool   // its figures are about time: nothing else may run
	run      func(*world)
	missing  func() string // why it cannot be run here, "" when it can
}

// result is what came of a row.
type result struct {
	row     row
	seen    string
	err     error
	skipped string
	took    time.Duration
}

func (r result) verdict(mutated bool) string {
	switch {
	case r.skipped != "":
		return "not run"
	case mutated && r.err != nil:
		return "found"
	case mutated:
		return "MISSED"
	case r.err != nil:
		return "FAIL"
	}
	return "pass"
}

// good reports whether the row did what it should; one that cannot be run here is no failure.
func (r result) good(mutated bool) bool {
	return r.skipped != "" || (r.err != nil) == mutated
}

// rows is the table.
func rows() []row {
	var all []row
	all = append(all, hubRows()...)
	all = append(all, agentRows()...)
	all = append(all, linkRows()...)
	all = append(all, diskRows()...)
	all = append(all, clockRows()...)
	all = append(all, trainerRows()...)
	for i := range all {
		all[i].id = i + 1
	}
	return all
}

// perform runs one row in a bed of its own.
func perform(r row, bin string, o options, talk io.Writer) result {
	out := result{row: r}
	if r.missing != nil {
		if out.skipped = r.missing(); out.skipped != "" {
			return out
		}
	}
	began := time.Now()
	var w *world
	out.err = kit.InBed(talk, func(b *kit.Bed) {
		w = newWorld(b, bin, o.mutate, o.seed)
		w.root = o.root
		r.run(w)
	})
	out.took = time.Since(began)
	if w != nil {
		out.seen = strings.Join(w.seen, "; ")
	}
	return out
}

// line is one row of the printed table, in Markdown.
func (r result) line(mutated bool) string {
	seen := r.seen
	if r.err != nil {
		seen = strings.TrimPrefix(seen+"; ", "; ") + firstLine(r.err.Error())
	}
	if r.skipped != "" {
		seen = r.skipped
	}
	expect := r.row.expect
	if mutated {
		expect = r.row.mutation
	}
	return fmt.Sprintf("| %d | %s | %s | %s | %s | %s | %.1f |", r.row.id, r.row.part, r.row.fault, expect, clip(seen, 220), r.verdict(mutated), r.took.Seconds())
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

func clip(s string, n int) string {
	s = strings.ReplaceAll(s, "|", "/")
	if len(s) > n {
		return s[:n] + " ..."
	}
	return s
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
