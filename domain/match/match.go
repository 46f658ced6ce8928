// Package match says which slots of a machine meet what a run asks for, with the reason in words and figures.
//
// It is pure and decides nothing: domain/plan asks it before it gives a slot work, broker/hub before it takes a run. It never
// looks at who is busy, online or paused: that is the planner's.
package match

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/domain/run"
)

// Slack is the part of a stated size that may be missing: a card sold with 16 GiB shows 15 GiB where error correction takes
// its share, and a system keeps some of a machine's memory.
const Slack = 1.0 / 16

// Machine is what matching looks at. Labels are facts; the rest is what the machine last said of itself.
type Machine struct {
	ID     domain.MachineID
	Name   string
	Labels map[string]string
	Slots  int
	Cores  int             // 0: not heard yet
	Vitals *machine.Vitals // nil: not heard yet
}

// Need is what a run asks of a machine.
type Need struct {
	run.Requirements
	Machines []string
	Take     run.Memory // what one slot takes at least
	Measured bool       // Take was measured by a dry step; otherwise it is reckoned from the model
}

// Of gives what a run with that spec and data needs. measured is what its dry step took, zero before it.
func Of(s *run.Spec, d *run.Dataset, measured run.Memory) Need {
	n := Need{Machines: s.Machines, Take: measured, Measured: measured != run.Memory{}}
	if s.Requirements != nil {
		n.Requirements = *s.Requirements
	}
	if !n.Measured {
		n.Take.Host = run.LeastMemory(s, d)
	}
	return n
}

// Anything reports whether every machine will do.
func (n *Need) Anything() bool {
	return n.GPU == nil && n.CPU == 0 && n.Memory == "" && n.Disk == "" && len(n.Labels) == 0 && len(n.Machines) == 0 && n.Take == run.Memory{}
}

// Equal reports whether both ask for the same, so that what was found for one holds for the other.
func (n *Need) Equal(o *Need) bool {
	sameGPU := n.GPU == o.GPU || n.GPU != nil && o.GPU != nil && *n.GPU == *o.GPU
	return sameGPU && n.Take == o.Take && n.Measured == o.Measured && n.CPU == o.CPU && n.Memory == o.Memory && n.Disk == o.Disk &&
		maps.Equal(n.Labels, o.Labels) && slices.Equal(n.Machines, o.Machines)
}

// Slot gives why a slot of m does not meet the need, empty when it does. Unknown says that it may once more is known of the machine.
func (n *Need) Slot(m *Machine, slot int) (why string, unknown bool) {
	if why := n.named(m); why != "" {
		return why, false
	}
	if why := n.labelled(m); why != "" {
		return why, false
	}
	if m.Vitals == nil {
		if n.looks() {
			return "it has not told its hardware since the hub started", true
		}
		return "", false
	}
	for _, check := range []func(*Machine, int) string{n.host, n.gpu, n.takes} {
		if why := check(m, slot); why != "" {
			return why, false
		}
	}
	return "", false
}

// looks reports whether the run's owner asks for hardware. What a slot takes is no wish: a machine that has not told its memory may try.
func (n *Need) looks() bool { return n.GPU != nil || n.CPU > 0 || n.Memory != "" || n.Disk != "" }

func (n *Need) named(m *Machine) string {
	if len(n.Machines) == 0 || slices.Contains(n.Machines, m.Name) || slices.Contains(n.Machines, string(m.ID)) {
		return ""
	}
	return "the run names other machines: " + domain.Clip(strings.Join(n.Machines, ", "), domain.MaxNameLength)
}

func (n *Need) labelled(m *Machine) string {
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		want := n.Labels[key]
		switch has, ok := m.Labels[key]; {
		case !ok:
			return fmt.Sprintf("it has no label %s, the run wants %s=%s", key, key, want)
		case has != want:
			return fmt.Sprintf("it has the label %s=%s, the run wants %s=%s", key, has, key, want)
		}
	}
	return ""
}

func (n *Need) host(m *Machine, _ int) string {
	v := m.Vitals
	switch {
	case n.CPU > m.Cores:
		return fmt.Sprintf("it has %d cores, the run wants %d", m.Cores, n.CPU)
	case !enough(v.Memory.Total, n.Memory.Bytes()):
		return fmt.Sprintf("it has %s of memory, the run wants %s", domain.FormatSize(v.Memory.Total), domain.FormatSize(n.Memory.Bytes()))
	case v.Disk.Free < n.Disk.Bytes():
		return fmt.Sprintf("it has %s of disk left, the run wants %s", domain.FormatSize(v.Disk.Free), domain.FormatSize(n.Disk.Bytes()))
	}
	return ""
}

// enough compares a size with one that people state in round figures.
func enough(has, wants uint64) bool { return float64(has) >= float64(wants)*(1-Slack) }

func (n *Need) gpu(m *Machine, slot int) string {
	if n.GPU == nil {
		return ""
	}
	g := m.Vitals.GPU(slot)
	switch {
	case g == nil && len(m.Vitals.GPUs) == 0:
		why := "it has no GPU"
		if m.Vitals.Trouble != "" {
			why += " (" + domain.Clip(m.Vitals.Trouble, domain.MaxNameLength) + ")"
		}
		return why + ", the run wants " + n.wish()
	case g == nil:
		return "the slot computes on the CPU, the run wants " + n.wish()
	case !named(g.Name, n.GPU.Model):
		return fmt.Sprintf("its GPU is %s, the run wants %s", g.Name, n.GPU.Model)
	}
	if part, sharers := share(m, g); !enough(part, n.GPU.Memory.Bytes()) {
		return fmt.Sprintf("%s, the run wants %s", room(g, part, sharers), domain.FormatSize(n.GPU.Memory.Bytes()))
	}
	if n.GPU.Count <= 1 {
		return "" // it is one itself
	}
	alike := 0
	for i := range m.Vitals.GPUs {
		if o := &m.Vitals.GPUs[i]; named(o.Name, n.GPU.Model) && enough(o.Memory.Total, n.GPU.Memory.Bytes()) {
			alike++
		}
	}
	if alike < n.GPU.Count {
		return fmt.Sprintf("it has %d of %s, the run wants %d", alike, n.wish(), n.GPU.Count)
	}
	return ""
}

// wish names the GPU that the run asks for.
func (n *Need) wish() string {
	s := "a GPU"
	if n.GPU.Model != "" {
		s = n.GPU.Model
	}
	if n.GPU.Memory != "" {
		s += " with " + domain.FormatSize(n.GPU.Memory.Bytes())
	}
	return s
}

// share is what one slot has of its GPU's memory, and how many slots share it.
func share(m *Machine, g *machine.GPU) (bytes uint64, sharers int) {
	for _, uuid := range m.Vitals.SlotGPUs {
		if uuid == g.UUID {
			sharers++
		}
	}
	return g.Memory.Total / uint64(max(sharers, 1)), sharers
}

func room(g *machine.GPU, share uint64, sharers int) string {
	if sharers > 1 {
		return fmt.Sprintf("its GPU of %s is shared by %d slots, %s each", domain.FormatSize(g.Memory.Total), sharers, domain.FormatSize(share))
	}
	return "its GPU has " + domain.FormatSize(share)
}

// takes compares what one slot takes with what the machine has. Memory of the machine is for its slots in their order: where it
// holds two of four, the first two take part.
func (n *Need) takes(m *Machine, slot int) string {
	verb := "the model takes at least"
	if n.Measured {
		verb = "a step of the run was measured to take"
	}
	if g := m.Vitals.GPU(slot); g != nil && n.Take.Device > 0 {
		if part, sharers := share(m, g); part < n.Take.Device {
			return fmt.Sprintf("%s, %s %s", room(g, part, sharers), verb, domain.FormatSize(n.Take.Device))
		}
	}
	total := m.Vitals.Memory.Total
	if total == 0 || n.Take.Host == 0 {
		return ""
	}
	fit := total / n.Take.Host
	switch {
	case fit > uint64(slot):
		return ""
	case fit == 0:
		return fmt.Sprintf("it has %s of memory, %s %s", domain.FormatSize(total), verb, domain.FormatSize(n.Take.Host))
	}
	return fmt.Sprintf("it has %s of memory, which holds %d of its %d slots: %s %s", domain.FormatSize(total), fit, m.Slots, verb, domain.FormatSize(n.Take.Host))
}

// named reports whether the pattern fits the name from the beginning of one of its words on; letter case does not count.
func named(name, pattern string) bool {
	if pattern == "" {
		return true
	}
	name, pattern = strings.ToLower(name), strings.ToLower(pattern)
	for {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			return true
		}
		_, rest, more := strings.Cut(name, " ")
		if !more {
			return false
		}
		name = rest
	}
}
