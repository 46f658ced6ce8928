package device

import (
	"runtime"
	"strings"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/mem"
	"github.com/shirou/gopsutil/v4/net"

	"tensorturn/domain"
	"tensorturn/domain/machine"
)

// processor is the CPU's name for people.
func processor() string {
	infos, err := cpu.Info()
	if err != nil || len(infos) == 0 || infos[0].ModelName == "" {
		return runtime.GOARCH
	}
	return domain.Clip(strings.Join(strings.Fields(infos[0].ModelName), " "), machine.MaxDeviceText)
}

// host measures everything but GPUs. What this system cannot say stays empty.
func host(v *machine.Vitals, dir string) {
	if p, err := cpu.Percent(0, false); err == nil && len(p) == 1 { // since the call before
		load := min(max(p[0]/100, 0), 1)
		v.Load = &load
	}
	if m, err := mem.VirtualMemory(); err == nil {
		v.Memory = machine.Space{Total: m.Total, Free: m.Available}
	}
	if d, err := disk.Usage(dir); err == nil {
		v.Disk = machine.Space{Total: d.Total, Free: d.Free}
	}
	cards, err := net.IOCounters(true)
	if err != nil {
		return
	}
	for _, c := range cards {
		if c.Name != "lo" && !strings.HasPrefix(c.Name, "lo0") {
			v.Sent, v.Received = v.Sent+c.BytesSent, v.Received+c.BytesRecv
		}
	}
}
