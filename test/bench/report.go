package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// report is everything that was measured; its JSON is a contract.
type report struct {
	Machine machineFacts  `json:"machine"`
	Date    time.Time     `json:"date"`
	Quick   bool          `json:"quick,omitempty"`
	Rows    []row         `json:"rows"`
	Notes   []string      `json:"notes,omitempty"` // how something was measured, where the time went
	Loads   []sectionLoad `json:"sections"`
	Failed  []string      `json:"failed,omitempty"` // sections that could not be measured
}

// row is one figure.
type row struct {
	Section string  `json:"section"`
	What    string  `json:"what"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Ratio   float64 `json:"ratio,omitempty"`    // 0: none
	Of      string  `json:"of,omitempty"`       // what the ratio compares with
	Limit   float64 `json:"limit,omitempty"`    // of Ratio, or of Value where there is no ratio: at most; 0: none
	Least   float64 `json:"at_least,omitempty"` // the same: at least; 0: none
	Zero    bool    `json:"zero,omitempty"`     // Value must be 0
}

// sectionLoad is how busy the machine was around a section.
type sectionLoad struct {
	Section string  `json:"section"`
	Before  float64 `json:"load_before"`
	After   float64 `json:"load_after"`
	Seconds float64 `json:"seconds"`
}

func (r *report) add(rows ...row) { r.Rows = append(r.Rows, rows...) }
func (r *report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// verdict is "", "ok" or "missed".
func (w row) verdict() string {
	x := w.Ratio
	if x == 0 {
		x = w.Value
	}
	switch {
	case w.Limit == 0 && w.Least == 0 && !w.Zero:
		return ""
	case (w.Limit == 0 || x <= w.Limit) && x >= w.Least && (!w.Zero || x == 0):
		return "ok"
	}
	return "missed"
}

func (r *report) missed() int {
	n := 0
	for _, w := range r.Rows {
		if w.verdict() == "missed" {
			n++
		}
	}
	return n
}

func (r *report) json(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// table prints the figures for people.
func (r *report) table(w io.Writer) error {
	m := r.Machine
	fmt.Fprintf(w, "%s · %d cores · %d MiB · %s/%s", m.CPU, m.Cores, m.Memory, m.OS, m.Arch)
	fmt.Fprintf(w, " · %s · GOAMD64 %s · %s\n", m.Go, m.GOAMD64, r.Date.Format("2006-01-02 15:04 MST"))
	if r.Quick {
		fmt.Fprintln(w, "quick: small sizes, the figures mean nothing")
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "section\twhat\tmeasured\tratio\tof\tlimit\t")
	for _, x := range r.Rows {
		fmt.Fprintf(t, "%s\t%s\t%s %s\t%s\t%s\t%s\t%s\n", x.Section, x.What, figure(x.Value), x.Unit, orNone(x.Ratio), x.Of, x.limit(), x.verdict())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, n := range r.Notes {
		fmt.Fprintln(w, n)
	}
	var loads []string
	for _, l := range r.Loads {
		loads = append(loads, fmt.Sprintf("%s %.0f s (%.1f, %.1f)", l.Section, l.Seconds, l.Before, l.After))
	}
	fmt.Fprintf(w, "time of each section, and load before and after it: %s\n", strings.Join(loads, ", "))
	for _, f := range r.Failed {
		fmt.Fprintln(w, "could not be measured:", f)
	}
	_, err := fmt.Fprintf(w, "limits missed: %d\n", r.missed())
	return err
}

// limit says what the figure is held against.
func (w row) limit() string {
	switch {
	case w.Zero:
		return "none"
	case w.Least > 0:
		return "≥ " + orNone(w.Least)
	case w.Limit > 0:
		return "≤ " + orNone(w.Limit)
	}
	return ""
}

func orNone(x float64) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf("%.3f", x)
}

// figure prints three digits that matter.
func figure(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}
