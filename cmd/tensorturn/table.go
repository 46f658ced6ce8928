package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
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

// count renders a number of things: "1 chunk", "2 chunks".
func count[T ~int | ~int64](n T, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return itoa(n) + " " + thing + "s"
}

// isAre renders a number of things with its verb: "1 sample is", "2 samples are".
func isAre(n int, thing string) string {
	if n == 1 {
		return "1 " + thing + " is"
	}
	return count(n, thing) + " are"
}

// significant renders a figure with three digits that count, without an exponent where people can do without.
func significant(x float64) string {
	switch abs := math.Abs(x); {
	case x == 0:
		return "0"
	case abs >= 1e6 || abs < 1e-3:
		return fmt.Sprintf("%.2e", x)
	case abs >= 100:
		return fmt.Sprintf("%.0f", x)
	default:
		return strconv.FormatFloat(x, 'f', 2-int(math.Floor(math.Log10(abs))), 64)
	}
}

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

// listing is the command that shows a list of the API, every page of it: as a table with the rows of each thing, or as JSON.
func listing[T any](a *app, short, path string, header []string, rowsOf func(T) [][]string) *cobra.Command {
	return &cobra.Command{Use: "list", Short: short, Args: args(),
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			all, err := pages[T](c.Context(), cl, path)
			if err != nil {
				return err
			}
			if a.json {
				return a.object(all)
			}
			rows := [][]string{}
			for _, one := range all {
				rows = append(rows, rowsOf(one)...)
			}
			a.table(header, rows)
			return nil
		}}
}
