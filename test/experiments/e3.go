package main

import "fmt"

// E3: how much fewer merges cost. The outer step is that of runs below 40 rounds for all, so that only H differs.

func fewerMerges(l *lab) error {
	base, err := l.fused()
	if err != nil {
		return err
	}
	var arms []arm
	for _, h := range []int{5, 50, 200} {
		a := base
		a.name, a.steps, a.eta, a.mu = fmt.Sprintf("H = %d", h), h, 1, 0.5
		if h > 5 {
			a = l.overshot(a)
		}
		arms = append(arms, a)
	}
	got, err := l.results(arms...)
	if err != nil {
		return err
	}
	l.rows(arms, got)
	l.atMost("H = 50 against H = 5", got[1], got[0], 0.02)
	l.atMost("H = 200 against H = 5", got[2], got[0], 0.05)
	return nil
}
