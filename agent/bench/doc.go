// Package bench measures what a machine can do: a float32 matrix product and memory on its CPU and on each of its GPUs, its disk,
// and its link to the hub. It decides nothing, keeps nothing and knows no hub but through the Link that cmd/tensorturn hands it; the
// agent calls Measure when no slot has work, and ends its context when one gets some: it then returns within a
// tenth of a second, or as soon as the disk has synced or the child of the GPUs has ended.
//
// A GPU is asked through the owner's Python with torch, in a child: without torch no trainer of this product uses a GPU either, so
// that nothing worth knowing is missed. What cannot be measured is left out with the reason, never guessed.
//
// Dependencies: gonum/blas32, the matrix product that the built-in trainer uses: its speed is that trainer's; shirou/gopsutil for the load
// of the cores, as in agent/device.
package bench

import "time"

// Shares of a benchmark: 20 s in all on an idle machine. Loading torch comes on top, and has a limit of its own.
const (
	matrixTime = 1500 * time.Millisecond
	memoryTime = 700 * time.Millisecond
	diskTime   = 2 * time.Second
	linkTime   = 2 * time.Second // for each direction, after its first bytes
	linkLimit  = 8 * time.Second // for one request
	gpuTime    = 4 * time.Second // of all GPUs
	torchLimit = time.Minute     // to load torch from a cold disk and start CUDA
)

// A CPU that other programs use more than mostLoad of is not measured now: its figure would make the machine look slow.
const (
	loadLook = 300 * time.Millisecond
	mostLoad = 0.5
)

// Sizes.
const (
	matrixSide  = 384       // about 15 ms on a slow core: soon enough to stop
	memoryBytes = 64 << 20  // well beyond the caches of a desktop
	diskBlock   = 4 << 20   //
	diskBytes   = 512 << 20 // written at most
	diskSpare   = 2 << 30   // bytes that must be free, or the disk is left alone
	linkFirst   = 64 << 10  // bytes: 1.7 s at 0.3 Mbit/s
	linkMost    = 8 << 20   // bytes of one request: what the hub takes as one part
	linkTrips   = 5         // whose median is the latency
)
