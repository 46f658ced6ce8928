//go:build cgo && linux

package device

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"tensorturn/domain"
	"tensorturn/domain/machine"
)

const listenTime = 1000 // milliseconds that one wait for errors takes

// identify learns who the GPU at an index is; nil when it is gone, which g then says.
func (l *library) identify(i int, g *machine.GPU) nvml.Device {
	d, ret := l.nvml.DeviceGetHandleByIndex(i)
	if ret != nvml.SUCCESS {
		g.Gone = l.gone(ret)
		return nil
	}
	uuid, ret := d.GetUUID()
	if ret != nvml.SUCCESS {
		g.Gone = l.gone(ret)
		return nil
	}
	if g.UUID != uuid { // indexes move when a GPU is lost
		*g = machine.GPU{Index: i, UUID: domain.Clip(uuid, machine.MaxDeviceText)}
	}
	if name, ret := d.GetName(); ret == nvml.SUCCESS {
		g.Name = domain.Clip(name, machine.MaxDeviceText)
	}
	return d
}

// ask reads one GPU. What the driver does not know stays nil. Only symbols that drivers have had for years are used: a missing one would
// end this process.
func (l *library) ask(d nvml.Device, g machine.GPU, seen *uint64) machine.GPU {
	if m, ret := d.GetMemoryInfo(); ret == nvml.SUCCESS {
		g.Memory = machine.Space{Total: m.Total, Free: m.Free}
	}
	u, ret := d.GetUtilizationRates() // the first that says that a GPU is lost
	if ret == nvml.ERROR_GPU_IS_LOST {
		g.Gone = l.gone(ret)
		return g
	}
	if ret == nvml.SUCCESS {
		g.Busy, g.MemoryBusy = share(u.Gpu), share(u.Memory)
	}
	g.Celsius = value(1)(d.GetTemperature(nvml.TEMPERATURE_GPU))
	g.Watts = value(1e-3)(d.GetPowerUsage())
	g.ClockMHz = value(1)(d.GetClockInfo(nvml.CLOCK_SM))
	g.MemClockMHz = value(1)(d.GetClockInfo(nvml.CLOCK_MEM))
	if mj, ret := d.GetTotalEnergyConsumption(); ret == nvml.SUCCESS {
		j := float64(mj) / 1e3
		g.Joules = &j
	}
	g.MemoryTemp = memoryTemperature(d)
	g.Others = l.others(d, seen)
	return g
}

func (l *library) gone(ret nvml.Return) string {
	switch ret {
	case nvml.ERROR_GPU_IS_LOST:
		return "it has fallen off the bus: restart the machine"
	case nvml.ERROR_UNKNOWN, nvml.ERROR_NOT_FOUND:
		return "its driver has lost it"
	}
	return "its driver says: " + domain.Clip(l.nvml.ErrorString(ret), 200)
}

func share(percent uint32) *float64 {
	x := min(float64(percent)/100, 1)
	return &x
}

// value scales an answer, nil when there is none.
func value(scale float64) func(uint32, nvml.Return) *float64 {
	return func(n uint32, ret nvml.Return) *float64 {
		if ret != nvml.SUCCESS {
			return nil
		}
		x := float64(n) * scale
		return &x
	}
}

// memoryTemperature is known on few models.
func memoryTemperature(d nvml.Device) *float64 {
	fields := []nvml.FieldValue{{FieldId: nvml.FI_DEV_MEMORY_TEMP}}
	if ret := d.GetFieldValues(fields); ret != nvml.SUCCESS || nvml.Return(fields[0].NvmlReturn) != nvml.SUCCESS {
		return nil
	}
	x := float64(binary.NativeEndian.Uint32(fields[0].Value[:4]))
	if x == 0 {
		return nil
	}
	return &x
}

// others reports whether a program that is not the agent's computes on the GPU with a good part of it, as a game or another training
// does and a desktop or a notebook that waits does not. Where the driver does not tell who uses how much, a CUDA context is enough.
func (l *library) others(d nvml.Device, seen *uint64) bool {
	samples, ret := d.GetProcessUtilization(*seen)
	switch ret {
	case nvml.SUCCESS:
		busy := false
		for _, s := range samples {
			*seen = max(*seen, s.TimeStamp)
			busy = busy || s.SmUtil >= foreignBusy && s.SmUtil <= 100 && foreign(l.agent, int(s.Pid))
		}
		return busy
	case nvml.ERROR_NOT_FOUND: // nobody has used it since
		return false
	}
	ps, ret := d.GetComputeRunningProcesses()
	return ret == nvml.SUCCESS && slices.ContainsFunc(ps, func(p nvml.ProcessInfo) bool { return foreign(l.agent, int(p.Pid)) })
}

// listen starts to collect the driver's error codes (XID), which are told once and never kept by it.
func (l *library) listen(n int) {
	if l.heard || n == 0 {
		return
	}
	l.heard = true
	set, ret := l.nvml.EventSetCreate()
	if ret != nvml.SUCCESS {
		return
	}
	registered := 0
	for i := range n {
		if d, ret := l.nvml.DeviceGetHandleByIndex(i); ret == nvml.SUCCESS && d.RegisterEvents(nvml.EventTypeXidCriticalError, set) == nvml.SUCCESS {
			registered++
		}
	}
	if registered == 0 {
		return
	}
	l.ears.Go(func() {
		defer set.Free()
		for {
			select {
			case <-l.over:
				return
			default:
			}
			e, ret := set.Wait(listenTime)
			switch ret {
			case nvml.SUCCESS:
				if uuid, ret := e.Device.GetUUID(); ret == nvml.SUCCESS {
					l.mu.Lock()
					l.xids[uuid] = xid{e.EventData, l.xids[uuid].count + 1}
					l.mu.Unlock()
				}
			case nvml.ERROR_TIMEOUT:
			default:
				select { // a lost GPU makes every wait fail at once
				case <-l.over:
				case <-time.After(listenTime * time.Millisecond):
				}
			}
		}
	})
}
