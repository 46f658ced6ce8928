package main

// E7: three in ten deltas are lost with the machine that made them. Their chunks come again in the next round. At equal
// attempted tokens the run has three tenths less to count; at equal counted tokens it takes longer and loses nothing.

const (
	deathRate = 0.3
	deathCost = 0.03
)

// plantDeaf trains the arm with deaths on a quarter of what it attempts.
const plantDeaf = "a quarter of the text"

func deaths(l *lab) error {
	base, err := l.fused()
	if err != nil {
		return err
	}
	counted, attempted := base, base
	counted.name, counted.die = "30 % lost, equal counted tokens", deathRate
	attempted.name, attempted.die, attempted.tokens = "30 % lost, equal attempted tokens", deathRate, int(float64(base.tokens)*(1-deathRate))
	if l.plant == plantDeaf {
		attempted.tokens /= 4
	}
	arms := []arm{base, counted, attempted}
	got, err := l.results(arms...)
	if err != nil {
		return err
	}
	l.rows(arms, got)
	lost, twice, missing := 0, 0, 0
	for _, ms := range got[1:] {
		for _, m := range ms {
			lost, twice, missing = lost+m.Dropped, twice+m.Twice, missing+m.Missing
		}
	}
	l.require(lost > 0 && twice == 0 && missing == 0, "every chunk is counted once: %d deltas lost, %d chunks counted twice, %d not", lost, twice, missing)
	l.atMost("three in ten lost at equal attempted tokens", got[2], got[0], deathCost)
	l.printf("- printed: at equal counted tokens: %s %%\n", points(over(got[1], got[0]).mean()))
	return nil
}
