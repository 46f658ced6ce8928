package machine

import "tensorturn/domain"

// Limits of Vitals. They bound a heartbeat: 64 processors take about 16 KiB.
const (
	MaxGPUs       = domain.MaxSlotsPerMachine
	MaxDeviceText = 128 // bytes of a name, a UUID, a version
)

// Vitals is a machine as it measured itself at one moment: facts of its hardware and readings. It travels on heartbeats and is no
// fact of the log. A reading that the machine cannot take is nil, so that nobody takes "unknown" for zero.
type Vitals struct {
	CPU    string   `msgpack:"cpu,omitempty" json:"cpu,omitempty" doc:"the processor's name"`
	Load   *float64 `msgpack:"load,omitempty" json:"load,omitempty" doc:"share of all cores in use, 0 to 1"`
	Memory Space    `msgpack:"mem,omitempty" json:"memory"`
	Disk   Space    `msgpack:"disk,omitempty" json:"disk" doc:"where the agent keeps its folder"`
	// Sent and Received count since the machine started, over all its networks but loopback.
	Sent     uint64 `msgpack:"tx,omitempty" json:"sent" doc:"bytes since the machine started"`
	Received uint64 `msgpack:"rx,omitempty" json:"received" doc:"bytes since the machine started"`
	Driver   string `msgpack:"driver,omitempty" json:"driver,omitempty" doc:"version of the GPU driver"`
	CUDA     string `msgpack:"cuda,omitempty" json:"cuda,omitempty" doc:"newest CUDA version that the driver serves"`
	// Trouble says why GPUs are not known, or are not known any more: no driver, a driver that hangs.
	Trouble string `msgpack:"trouble,omitempty" json:"trouble,omitempty"`
	GPUs    []GPU  `msgpack:"gpus,omitempty" json:"gpus,omitempty"`
	// SlotGPUs gives for each slot the UUID of its GPU, empty for a slot of the CPU. Nil: all slots are of the CPU.
	SlotGPUs []string `msgpack:"slots,omitempty" json:"slotGpus,omitempty"`
}

// Space is a store of bytes.
type Space struct {
	Total uint64 `msgpack:"t,omitempty" json:"total"`
	Free  uint64 `msgpack:"f,omitempty" json:"free" doc:"what a program may still get"`
}

// GPU is one graphics processor as its driver describes it. Its UUID is its identity: indexes change over a restart.
type GPU struct {
	Index  int    `msgpack:"i" json:"index"`
	UUID   string `msgpack:"uuid" json:"uuid"`
	Name   string `msgpack:"name" json:"name"`
	Memory Space  `msgpack:"mem" json:"memory"`

	Busy        *float64 `msgpack:"busy,omitempty" json:"utilisation,omitempty" doc:"share of the time in which it computed, 0 to 1"`
	MemoryBusy  *float64 `msgpack:"mbusy,omitempty" json:"memoryUtilisation,omitempty" doc:"share of the time in which its memory was read or written, 0 to 1"`
	Celsius     *float64 `msgpack:"temp,omitempty" json:"celsius,omitempty"`
	MemoryTemp  *float64 `msgpack:"mtemp,omitempty" json:"memoryCelsius,omitempty"`
	Watts       *float64 `msgpack:"watts,omitempty" json:"watts,omitempty"`
	Joules      *float64 `msgpack:"joules,omitempty" json:"joules,omitempty" doc:"since its driver was loaded"`
	ClockMHz    *float64 `msgpack:"clock,omitempty" json:"clockMhz,omitempty"`
	MemClockMHz *float64 `msgpack:"mclock,omitempty" json:"memoryClockMhz,omitempty"`
	XID         uint64   `msgpack:"xid,omitempty" json:"xid,omitempty" doc:"newest error code of the driver since the agent started, 0 for none"`
	Errors      uint64   `msgpack:"errs,omitempty" json:"xidErrors,omitempty" doc:"how many such errors there were"`
	// Gone says why the GPU is not usable now: fallen off the bus, its driver does not answer. Empty when it is there.
	Gone string `msgpack:"gone,omitempty" json:"gone,omitempty"`
	// Others says that a program which is not the agent's computes on it.
	Others bool `msgpack:"others,omitempty" json:"others,omitempty"`
}

// GPU gives the GPU of a slot, nil for a slot of the CPU.
func (v *Vitals) GPU(slot int) *GPU {
	if v == nil || slot < 0 || slot >= len(v.SlotGPUs) || v.SlotGPUs[slot] == "" {
		return nil
	}
	for i := range v.GPUs {
		if v.GPUs[i].UUID == v.SlotGPUs[slot] {
			return &v.GPUs[i]
		}
	}
	return nil
}
