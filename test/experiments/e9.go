package main

// E9: inner optimizer state stays with its slot from round to round. Where it is thrown away the loss must be worse, or
// nobody would notice a product that does so silently.

const forgetHurts = 0.02

// plantMemory keeps the state after all.
const plantMemory = "state is kept"

func forgetful(l *lab) error {
	return l.hurts(forgetHurts, "thrown away it is", func(a *arm) { a.name, a.reset = "state thrown away each round", l.plant != plantMemory })
}
