package main

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// table prints rows in columns on standard output.
func (t *terminal) table(head []string, rows [][]string) {
	w := tabwriter.NewWriter(t.out, 2, 4, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(head, "\t"))
	for _, r := range rows {
		for i := range r {
			r[i] = clean(r[i])
		}
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	w.Flush()
}

func itoa[T ~int | ~int64 | ~uint64](n T) string { return strconv.FormatInt(int64(n), 10) }

// short renders a duration for people: 950ms, 12.3s, 4m5s, 3h2m.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// percent renders a fraction.
func percent(part, whole int64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(whole))
}
