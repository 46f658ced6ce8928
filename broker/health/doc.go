// Package health watches what the hub stands on: the room for its store, the store itself, and the loop that decides. It
// says whether the hub is starting, ready, low on disk, full or read-only, refuses new work before the store is full, and has
// the embedded server recycled when JetStream has given up. It decides nothing about runs and touches no file; cmd wires it,
// broker/gateway asks it, broker/hub is told when it is worth trying again.
//
// DESIGN.md has the two marks and why they are where they are.
package health
