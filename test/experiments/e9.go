package main

// E9: inner optimizer state stays with its slot from round to round. Where it is thrown away the loss must be worse, or
// nobody would notice a product that does so silently.

const forgetHurts = 0.02

// plantMemory keeps the state after all.
const plantMemory = "state is kept"

func forgetful(l *lab) error {
	base, err := l.fused()
	if err != nil {
		return err
	}
	a := base
	a.name, a.reset = "state thrown away each round", l.plant != plantMemory
	arms := []arm{base, a}
	got, err := l.results(arms...)
	if err != nil {
		return err
	}
	l.rows(arms, got)
	gap := over(got[1], got[0])
	l.require(gap.mean() >= forgetHurts, "thrown away it is worse: %s %% (needed: %s %%)", points(gap.mean()), points(forgetHurts))
	return nil
}
