// Package doctor looks for what hinders a machine, a hub's or an agent's, and names each finding with its fix. It changes
// nothing on the machine or at the hub: it uses no token up, renews no credential, writes nothing but a file in the temporary
// folder that it takes away again. Checks run side by side, each with its own time limit. What they look with are Probes, so that
// hardware, clocks and disks can be faked; cmd/tensorturn fills them in, and makes the Patient from an agent's or hub's folder.
// DESIGN.md has the table of codes.
//
// Dependency: golang.org/x/sys, because limits and free space are asked for in another way on each system.
package doctor

import "time"

// Limits. What takes longer than its limit is told as not known.
const (
	netLimit     = 20 * time.Second // name, connection, handshake and answer: a leaf allows each as much
	pythonLimit  = 90 * time.Second // a first import of torch from a cold disk takes half of it
	gpuLimit     = 15 * time.Second // above the prober's own 10 s
	sandboxLimit = 30 * time.Second
	localLimit   = 5 * time.Second // a disk that takes longer is a dead network disk

	maxListed = 1000     // machines that a hub is asked for: its largest page
	maxPages  = 8        // of that list that are followed: a pool has 1,024 machines, and the list names those of old
	maxAnswer = 32 << 20 // bytes of an answer of the hub: all machines with what they measure
)

// Thresholds.
const (
	clockWorks = 30 * time.Second // an agent goes by the hub's clock beyond it
	clockFails = 2 * time.Minute  // what a hub forgives in a proof; beyond it other programs are wrong too

	// AgentFree is what an agent's disk needs: its cache leaves half a gibibyte, and a slot keeps five copies of the weights.
	AgentFree = 2 << 30
	tempFree  = 64 << 20 // of the temporary folder: sockets, proofs, and what a compiler of torch unpacks
	certSoon  = 7 * 24 * time.Hour

	agentFiles = 1024 // of an agent: eight parts, 64 slots with sockets and logs, the leafnode
	hubFiles   = 4096 // of a hub: two connections for each of a thousand machines, and the store's blocks

	minPython = 8 // Python 3.8: what the oldest torch 2 runs on
)
