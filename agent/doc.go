// Package agent is the process on a machine: it compares what the hub wants of each slot with what the slot holds, and
// does one thing at a time until both agree.
//
// Core is that comparison, a step function without goroutine, clock, network or file: an Input in, Effects out. Agent
// is the world around it: one loop goroutine owns Core, one worker per slot performs its effects, one more talks to
// the hub, one more sends wanted blobs again. A simulator drives Core with a performer of its own.
//
// The agent decides nothing about a run. It never invents work, never counts, never judges a delta; it may only stop:
// without contact it goes on computing what it holds and, after nine tenths of the lease time, stops committing.
//
// Who calls it: cmd/tensorturn makes the ports (link, blobs, trainer factory, cache) and starts an Agent.
package agent
