package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tensorturn/domain/run"
)

// E11: one of four machines sends deltas a hundred times too long, or unusable ones, from the fifth round on. The gates of
// the product refuse them, the chunks come again, three refusals in a row take the machine out. What the norm gate cannot
// see, an attack before the fourth merge, is printed.

const attackCost = 0.01

// plantOpen takes the gates away.
const plantOpen = "no gates"

func attackers(l *lab) error {
	base, err := l.fused()
	if err != nil {
		return err
	}
	huge, mixed, early := base, base, base
	huge.name, huge.bad, huge.open = "×100 from round 5", badHuge, l.plant == plantOpen
	mixed.name, mixed.bad = "not finite, other base, other shape", badMixed
	early.name, early.bad = "×100 from round 1 (the norm gate does not judge yet)", badAtOnce
	arms := []arm{base, huge, mixed}
	got, err := l.results(arms...)
	if err != nil {
		return err
	}
	l.rows(arms, got)
	if err := l.bench.do(l.ctx, []job{{early, 1}}); err != nil { // printed, not judged: one seed
		return err
	}
	first := l.bench.known[job{early, 1}.key()]
	for i := range arms[1:3] {
		l.atMost(arms[i+1].name, got[i+1], got[0], attackCost)
	}
	told := func(m measured) string {
		var out []string
		for _, why := range slices.Sorted(maps.Keys(m.Refused)) {
			out = append(out, fmt.Sprintf("%d %s", m.Refused[why], why))
		}
		return strings.Join(out, ", ")
	}
	for k := range got[0] {
		r := got[2][k].Refused
		l.require(r[string(run.RefusedNotFinite)] > 0 && r[string(run.RefusedBase)] > 0 && r[string(run.RefusedLayout)] > 0,
			"unusable deltas are refused for what they are: %s", told(got[2][k]))
		l.require(got[1][k].Refused[string(run.RefusedNorm)] == run.MaxRefusals || l.plant != "", "long deltas are refused until the machine is taken out: %s", told(got[1][k]))
	}
	l.printf("- printed: ×100 from round 1, before the norm gate judges, one seed: %s %% (refused: %s)\n", points(first.Loss/got[0][0].Loss-1), told(first))
	return nil
}
