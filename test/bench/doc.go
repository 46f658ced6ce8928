// Command bench measures what the product promises in figures and prints one table: speeds of unequal slots against the
// ideal, merges against Go's copy, synced appends, replay, blobs through the front, the built-in trainer, and the memory
// of a large merge. It names the machine. It is no test: nothing in make test looks at a clock.
//
// Every figure comes from shipped code, the first from a real hub and real agents as processes of their own. A ratio
// stands beside what was measured in the same run on the same machine, so that it means something elsewhere.
//
//	make bench                     everything, some three minutes
//	go run ./test/bench --only speeds,merge
//	go run ./test/bench --quick    small sizes, to see that it works; its figures mean nothing
//
// It exits 1 when a figure that has a limit misses it. RESULTS.md keeps the figures with their date and machine.
package main
