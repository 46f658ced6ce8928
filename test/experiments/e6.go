package main

// E6: machines of speeds 1:2:4:8. With equal shares all wait for the slowest; with leases from one pool each takes what it
// can. A chunk goes to the machine that is free first, as claims do.

// plantStatic gives the leased arm equal shares as well.
const plantStatic = "no leases"

func leases(l *lab) error {
	base, err := l.fused()
	if err != nil {
		return err
	}
	a := base
	a.name, a.speeds, a.static = "equal shares", uneven, true
	b := a
	b.name, b.static = "leases, weighed by samples", l.plant == plantStatic
	arms := []arm{a, b}
	got, err := l.results(arms...)
	if err != nil {
		return err
	}
	l.rows(arms, got)
	ratio := got[0][0].Time / got[1][0].Time
	l.require(ratio >= 3, "leases take a third of the time or less: %.2f times less (3.75 is ideal)", ratio)
	l.atMost("leases against equal shares", got[1], got[0], 0.01)
	return nil
}
