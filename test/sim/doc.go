// Package sim is the simulator: the real hub core and real agent cores in one goroutine, on virtual time, over a log and
// blobs in memory, with faults drawn from a seed. The same seed gives the same trace, so that every failure comes again.
//
// It decides nothing about runs: it carries messages, performs effects with a model of eight numbers, breaks things, and
// checks after every step of the hub that nothing wrong is in the log. The tests of this package and `make sim` use it.
//
// It imports both sides (broker/hub and agent), which only cmd may do otherwise, and google/go-cmp to show how two folds
// differ; nothing that ships imports it.
package sim
