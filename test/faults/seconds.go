package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"tensorturn/domain"
	"tensorturn/projections/goodput"
)

// ledger tells where the seconds of the machines went between began and ended: projections/goodput reads the log, and is told of the
// absences that only this harness has seen.
func (w *world) ledger(id domain.RunID, began, ended time.Time, there *presence, machines []string) goodput.Report {
	ids := map[string]domain.MachineID{}
	for _, n := range machines {
		ids[n] = w.machine(n).ID
	}
	l := goodput.New(id, there.absences(ids)...)
	l.Within(began, ended)
	for _, e := range w.Events() {
		l.Apply(e)
	}
	r, err := l.Report()
	w.Must(err)
	return r
}

// absences are those of machines, whose time does not count, and of the hub.
func (p *presence) absences(ids map[string]domain.MachineID) []goodput.Absence {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []goodput.Absence
	for _, g := range p.gone {
		out = append(out, goodput.Absence{Machine: ids[g.name], From: g.from, To: g.to})
	}
	for _, g := range p.hubGone {
		out = append(out, goodput.Absence{From: g.from, To: g.to})
	}
	return out
}

// printSeconds writes what became of the seconds, the greatest first.
func printSeconds(out io.Writer, all goodput.Row) {
	fmt.Fprintf(out, "| what became of the seconds of connected slots | s | share |\n|---|---|---|\n")
	kinds := goodput.Kinds()
	slices.SortStableFunc(kinds, func(a, b goodput.Kind) int { return cmp.Compare(all.Seconds[b], all.Seconds[a]) })
	for _, k := range kinds {
		if s := all.Seconds[k]; s >= 0.05 {
			fmt.Fprintf(out, "| %s | %.1f | %.4f |\n", k.Words(), s, s/all.Connected)
		}
	}
	fmt.Fprintf(out, "| all | %.1f | |\n", all.Connected)
}
