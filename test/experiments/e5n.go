package main

// E5n: the largest 64 of each 4,096 differences, and what is left out is lost for good. It must hurt, or E5 could not see
// a codec that does harm.

const bluntHurts = 0.10

// plantSharp sends everything.
const plantSharp = "nothing is lost"

func blunt(l *lab) error {
	return l.hurts(bluntHurts, "the blunt code is", func(a *arm) { a.name, a.topk = "top 1/64 without feedback", l.plant != plantSharp })
}
