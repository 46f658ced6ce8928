// Package domain holds the words every other package speaks: typed ids, limits and error kinds.
//
// Below it live the values and functions that decide: domain/event (the record and its chain), domain/run,
// domain/machine and domain/pool (the aggregates, each with Decide and Evolve), domain/plan (scheduling),
// domain/merge (arithmetic), domain/blob, domain/safetensors, domain/dataset and domain/pack (formats).
//
// Nothing in domain knows a socket, a disk, a clock, a random source, a goroutine or a logger. A time, a random
// number, an id or a network answer arrives as an argument. test/arch holds the import table that keeps it so.
package domain
