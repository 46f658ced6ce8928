package main

// E5n: the largest 64 of each 4,096 differences, and what is left out is lost for good. It must hurt, or E5 could not see
// a codec that does harm.

const bluntHurts = 0.10

// plantSharp sends everything.
const plantSharp = "nothing is lost"

func blunt(l *lab) error {
	base, err := l.fused()
	if err != nil {
		return err
	}
	a := base
	a.name, a.topk = "top 1/64 without feedback", l.plant != plantSharp
	arms := []arm{base, a}
	got, err := l.results(arms...)
	if err != nil {
		return err
	}
	l.rows(arms, got)
	gap := over(got[1], got[0])
	l.require(gap.mean() >= bluntHurts, "the blunt code is worse: %s %% (needed: %s %%)", points(gap.mean()), points(bluntHurts))
	return nil
}
