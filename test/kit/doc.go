// Package kit runs the built binary for tests: a hub and agents as real processes in folders of their own, the command
// line as a person types it, and the hub's API to wait for what is to happen. It holds no assertion about the product
// and knows no package of it but the shapes of the API's answers. test/e2e and test/bench call it.
//
// Everything is bounded: each wait has Patience, each process is ended by its pid when the test ends, and the last lines
// of every process are printed when the test has failed.
package kit
