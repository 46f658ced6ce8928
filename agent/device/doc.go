// Package device says what a machine has and how it fares: its GPUs by NVIDIA's management library (NVML), its cores, memory,
// disk and network. It decides nothing, starts no trainer and knows no hub: cmd/tensorturn starts a Machine and hands its
// Vitals to the agent.
//
// A driver can hang, crash its caller, or come minutes after the agent. So no call of it ever happens in the agent's process: a child,
// the same binary under HelperWord, asks it and prints what it learns as lines of JSON. A child that says nothing for ProbeLimit is
// killed; after MaxStrikes the GPUs count as gone, and a new child is tried every SlowRetry. Vitals never waits.
//
// Builds without cgo, which run everywhere, ask the program nvidia-smi instead of the library: the same readings, without error codes
// (XID) and energy.
//
// Dependencies: NVIDIA/go-nvml, the vendor's own binding, which also brings the mock of its tests; shirou/gopsutil, because memory,
// load and networks are counted in another way on each system.
package device

import "time"

// HelperWord is the first argument that makes this binary the prober: see Main.
const HelperWord = "gpu-probe"

// Limits.
const (
	Interval   = 2 * time.Second  // between readings: two fit between the syncs of an agent
	ProbeLimit = 10 * time.Second // of silence of the prober; gpud and Ray allow as much
	deviceTime = 3 * time.Second  // for one GPU, within the prober: one that hangs must not hide the others
	MaxStrikes = 3                // silences in a row until the GPUs count as gone
	QuickRetry = time.Second      // after the first strikes
	SlowRetry  = time.Minute      // after MaxStrikes, and where there is no driver: it may be loaded later
	maxStuck   = 3                // killed probers that the kernel does not let end; beyond them no new one is started
	endTime    = time.Second      // for a killed prober to end before it counts as stuck
	maxLine    = 256 << 10        // bytes of one reading
)
