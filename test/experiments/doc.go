// Command experiments runs the learning experiments behind the product's claims on this machine, prints a table of each,
// and fails when one misses a threshold. `make experiments` runs all; `ONLY=E13` some.
//
// An experiment is one file: a function that takes a *lab, measures with the product's own packages (the built-in
// trainer, domain/merge, domain/vote), prints rows and states what must hold. The list in main.go has a line for it.
// Nothing here schedules, stores or listens. Each claim has a negative control or a planted fault: what cannot fail
// proves nothing (experiments_test.go).
//
// The last results of every experiment stand in RESULTS.md, one block each, rewritten by -write.
package main
