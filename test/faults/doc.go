// Command faults breaks a pool of real processes in thirty ways and prints a table: the fault, what is expected, what was seen,
// pass or fail, seconds. Each row also has a mutation, which takes the protection away or makes the fault fatal; with -mutate
// every row is run with it and must fail, or the row shows nothing.
//
//	go run ./test/faults                 all rows, four at a time
//	go run ./test/faults -rows 3,21      some
//	go run ./test/faults -mutate         the same rows, broken: each must fail
//	go run ./test/faults -list           what there is
//
// Every pool has a short lease (6 s instead of 120 s), so faults that last are scaled with it: what is said of 60 s is done for
// half a lease. Faults of links go through a proxy in this program, so that no other traffic and no right is touched; full and
// failing disks, memory limits and injected system calls need root or ptrace and say so where they are not there.
//
// It holds no rule of the product: what must be true afterwards is in check.go, the same for every row.
package main
