package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"tensorturn/domain"
	"tensorturn/domain/machine"
)

// maxHardware bounds the GPUs and machines of one scrape: 24 series each. Beyond it the youngest are left out, which
// tensorturn_hardware_omitted says.
const maxHardware = 1024

// Hardware is a machine that measures itself.
type Hardware struct {
	Machine domain.MachineID
	Name    string
	Vitals  *machine.Vitals
}

var machineLabels = []string{"machine", "hostname"}

// gpuLabels are DCGM's own where promtool lets them be (it refuses modelName), and the machine's: agents sit behind NAT, so that the
// scraped address says nothing.
var gpuLabels = []string{"gpu", "UUID", "model", "Hostname", "machine"}

// dcgm gives a GPU's readings the names of NVIDIA's exporter, so that existing boards show them. Memory is in MiB and energy in mJ there.
func dcgm(g *machine.GPU) []reading {
	known := func(x float64) *float64 { return &x }
	used, free := known(0), known(0)
	if g.Memory.Total == 0 || g.Gone != "" {
		used, free = nil, nil
	} else {
		*used, *free = float64(g.Memory.Total-min(g.Memory.Free, g.Memory.Total))/(1<<20), float64(g.Memory.Free)/(1<<20)
	}
	return []reading{
		{"GPU_UTIL", "GPU utilization (in %).", times(g.Busy, 100)}, {"MEM_COPY_UTIL", "Memory utilization (in %).", times(g.MemoryBusy, 100)},
		{"FB_USED", "Framebuffer memory used (in MiB).", used}, {"FB_FREE", "Framebuffer memory free (in MiB).", free},
		{"GPU_TEMP", "GPU temperature (in C).", g.Celsius}, {"MEMORY_TEMP", "Memory temperature (in C).", g.MemoryTemp},
		{"POWER_USAGE", "Power draw (in W).", g.Watts}, {"TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).", times(g.Joules, 1000)},
		{"SM_CLOCK", "SM clock frequency (in MHz).", g.ClockMHz}, {"MEM_CLOCK", "Memory clock frequency (in MHz).", g.MemClockMHz},
		{"XID_ERRORS", "Value of the last XID error encountered.", known(float64(g.XID))},
	}
}

// reading is one value with its name; nil is not shown.
type reading struct {
	name, help string
	value      *float64
}

func times(x *float64, by float64) *float64 {
	if x == nil {
		return nil
	}
	y := *x * by
	return &y
}

// hardware sends what machines measure. Two slots of one machine share a GPU, and a GPU is told once; a UUID that two machines claim is
// theirs both, by their labels.
func hardware(all []Hardware, to chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	up := gauge("gpu_up", "1 for a GPU that can be used, 0 for one that is gone.", gpuLabels...)
	shown, omitted := 0, 0
	for _, h := range all {
		if h.Vitals == nil {
			continue
		}
		if shown++; shown > maxHardware {
			omitted += 1 + len(h.Vitals.GPUs)
			continue
		}
		name := []string{string(h.Machine), h.Name}
		for _, r := range vitals(h.Vitals) {
			if r.value != nil {
				send(gauge(r.name, r.help, machineLabels...), prometheus.GaugeValue, *r.value, name...)
			}
		}
		send(gauge("machine_network_sent_bytes_total", "Bytes that the machine has sent since it started.", machineLabels...), prometheus.CounterValue, float64(h.Vitals.Sent), name...)
		send(gauge("machine_network_received_bytes_total", "Bytes that the machine has received since it started.", machineLabels...), prometheus.CounterValue, float64(h.Vitals.Received), name...)
		seen := map[string]bool{}
		for i := range h.Vitals.GPUs {
			g := &h.Vitals.GPUs[i]
			if seen[g.UUID] {
				continue
			}
			seen[g.UUID] = true
			if shown++; shown > maxHardware {
				omitted++
				continue
			}
			labels := []string{strconv.Itoa(g.Index), clean(g.UUID), clean(g.Name), h.Name, string(h.Machine)}
			for _, r := range dcgm(g) {
				if r.value != nil {
					send(prometheus.NewDesc("DCGM_FI_DEV_"+r.name, r.help, gpuLabels, nil), prometheus.GaugeValue, *r.value, labels...)
				}
			}
			there := 1.0
			if g.Gone != "" {
				there = 0
			}
			send(up, prometheus.GaugeValue, there, labels...)
		}
	}
	send(gauge("hardware_omitted", "Machines and GPUs that are too many to be shown here."), prometheus.GaugeValue, float64(omitted))
}

func vitals(v *machine.Vitals) []reading {
	size := func(s uint64) *float64 {
		x := float64(s)
		return &x
	}
	return []reading{
		{"machine_cpu_ratio", "Share of the machine's cores in use.", v.Load},
		{"machine_memory_bytes", "Memory of the machine.", size(v.Memory.Total)}, {"machine_memory_free_bytes", "Memory that a program may still get.", size(v.Memory.Free)},
		{"machine_disk_bytes", "Disk that holds the agent's folder.", size(v.Disk.Total)}, {"machine_disk_free_bytes", "Free bytes of that disk.", size(v.Disk.Free)},
	}
}

// clean makes a foreign text a label: Prometheus refuses a whole scrape for one byte that is not UTF-8.
func clean(s string) string {
	out := []rune{}
	for _, r := range s {
		if r == '\uFFFD' || r < ' ' {
			r = '?'
		}
		out = append(out, r)
	}
	return string(out)
}
