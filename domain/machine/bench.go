package machine

import (
	"fmt"
	"slices"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Slump is the share of its usual speed below which a machine is told to be slow: 30 % less.
const Slump = 0.7

// Limits of benchmarks.
const (
	UsualOf         = 5           // measurements whose median is what a machine usually does
	MaxBenchDevices = MaxGPUs + 1 // every GPU and the CPU
	MaxBenchLeft    = 16          // sentences about what was not measured
	maxBenchSeconds = 24 * 3600   // beyond it an agent's clock is broken
	maxUsual        = 4 * MaxGPUs // remembered series; the oldest go: GPUs that were sold
	MaxScore        = 1e18        // of any figure: faster is no machine
	MinScore        = 1.0         // of any figure: what is slower counts as not measured, since times are reckoned by dividing by it
)

// Figure names what a benchmark measures.
type Figure string

// The figures. More is better for each that a machine can be slow in; latency is told and never judged.
const (
	Matrix Figure = "matrix product" // floating point operations per second, float32
	Memory Figure = "memory"         // bytes per second, read and written
	Disk   Figure = "disk"           // bytes per second, written and synced
	Up     Figure = "link up"        // bytes per second, machine to hub
	Down   Figure = "link down"      // bytes per second, hub to machine
)

// Score is what one benchmark measured. A figure that could not be measured is 0.
type Score struct {
	Devices []DeviceScore `msgpack:"devices,omitempty" json:"devices,omitempty" doc:"the CPU, and each GPU that a slot computes on"`
	// Slots gives for each slot the device it computes on; nil: all are of the CPU.
	Slots   []string `msgpack:"slots,omitempty" json:"slots,omitempty" doc:"UUID of each slot's GPU, empty for the CPU"`
	Disk    float64  `msgpack:"disk,omitempty" json:"disk" doc:"bytes per second, written and synced"`
	Up      float64  `msgpack:"up,omitempty" json:"up" doc:"bytes per second from the machine to the hub"`
	Down    float64  `msgpack:"down,omitempty" json:"down" doc:"bytes per second from the hub to the machine"`
	Latency float64  `msgpack:"latency,omitempty" json:"latency" doc:"seconds of a round trip to the hub"`
	Driver  string   `msgpack:"driver,omitempty" json:"driver,omitempty" doc:"version of the GPU driver"`
	Seconds float64  `msgpack:"seconds,omitempty" json:"seconds" doc:"that it took"`
	// Left says what could not be measured, and why.
	Left []string `msgpack:"left,omitempty" json:"left,omitempty" doc:"what was not measured, and why"`
}

// DeviceScore is what one processor does with all of its power: two slots that share it get half each.
type DeviceScore struct {
	Device string  `msgpack:"device,omitempty" json:"device" doc:"UUID of the GPU, empty for the CPU"`
	Name   string  `msgpack:"name,omitempty" json:"name"`
	Flops  float64 `msgpack:"flops,omitempty" json:"flops" doc:"floating point operations per second of a float32 matrix product"`
	Memory float64 `msgpack:"memory,omitempty" json:"memory" doc:"bytes per second, read and written"`
}

// Bench is the newest benchmark of a machine.
type Bench struct {
	Number int       `json:"number"`
	Reason string    `json:"reason" doc:"why it was taken"`
	At     time.Time `json:"at"`
	Score
}

// Shortfall is one figure that is far below what the machine usually does.
type Shortfall struct {
	Device string  `msgpack:"device,omitempty" json:"device,omitempty"`
	Figure Figure  `msgpack:"figure" json:"figure"`
	Value  float64 `msgpack:"value" json:"value"`
	Usual  float64 `msgpack:"usual" json:"usual" doc:"the median of earlier measurements"`
}

// Usual are the newest measurements of one figure that were no shortfall, oldest first.
type Usual struct {
	Device string
	Figure Figure
	Values []float64
}

type (
	// AskBench wants the machine measured again. Anew: what it did before does not count any more, as after a change of hardware.
	AskBench struct {
		Reason string
		Anew   bool
	}
	// RecordBench is what the agent measured for the benchmark of that number.
	RecordBench struct {
		Number int
		Score  Score
	}
)

func (AskBench) isCommand()    {}
func (RecordBench) isCommand() {}

// BenchWanted gives the number of the benchmark that the machine shall take, 0 for none. The first is wanted when it joins.
func (s *State) BenchWanted() int {
	if s.Standing == Revoked || s.Standing == Enrolled {
		return 0
	}
	return s.benchDue()
}

// Resting reports whether its owner wants the machine, or a part of it, left alone now: then it is not measured either.
func (s *State) Resting() bool {
	return s.Draining || slices.ContainsFunc(s.Paused, func(p SlotPause) bool { return p.Cause != ByAbsence })
}

// benchDue is BenchWanted of a machine that works.
func (s *State) benchDue() int {
	if s.Bench != nil && s.Bench.Number >= s.Asked {
		return 0
	}
	return max(s.Asked, 1)
}

// Power gives what a slot can compute, in floating point operations per second, by the newest benchmark: its share of its GPU, or of
// the CPU when onCPU says that its trainer knows no GPU. It is 0 when that is not known.
func (s *State) Power(slot int, onCPU bool) float64 {
	if s.Bench == nil || slot < 0 || slot >= s.Slots {
		return 0
	}
	on := func(i int) string {
		if onCPU || i >= len(s.Bench.Slots) {
			return ""
		}
		return s.Bench.Slots[i]
	}
	sharers := 0
	for i := range s.Slots {
		if on(i) == on(slot) {
			sharers++
		}
	}
	for _, d := range s.Bench.Devices {
		if d.Device == on(slot) {
			return d.Flops / float64(sharers)
		}
	}
	return 0
}

func decideAskBench(s *State, c AskBench) ([]event.Data, error) {
	if s.Standing == Revoked {
		return nil, domain.Conflict("measure machine "+string(s.ID), "the machine is revoked", "nothing is left to measure")
	}
	if s.benchDue() > 0 && (!c.Anew || s.AskedAnew) {
		return nil, nil
	}
	newest := max(s.Asked, 1)
	if s.Bench != nil {
		newest = max(newest, s.Bench.Number)
	}
	return []event.Data{&BenchAsked{Number: newest + 1, Reason: reason(c.Reason, "asked by the owner"), Anew: c.Anew}}, nil
}

func decideRecordBench(s *State, c RecordBench) ([]event.Data, error) {
	if c.Number < 1 || c.Number != s.BenchWanted() {
		return nil, nil // known, or overtaken by a newer wish
	}
	if why := c.Score.wrong(); why != "" {
		return nil, domain.Invalid("record benchmark of machine "+string(s.ID), why, "update the agent")
	}
	score := c.Score.known()
	short := s.shortfalls(score)
	out := []event.Data{&Benchmarked{Number: c.Number, Reason: reason(s.AskedFor, "the machine joined"), Score: score, Short: short}}
	switch {
	case len(short) > 0 && !sameFigures(short, s.Slow):
		out = append(out, &BecameSlow{Short: short})
	case len(short) == 0 && len(s.Slow) > 0:
		out = append(out, &Recovered{})
	}
	return out, nil
}

// wrong says why a score cannot be believed, empty when it can.
func (c Score) wrong() string {
	if len(c.Devices) > MaxBenchDevices || len(c.Slots) > domain.MaxSlotsPerMachine {
		return fmt.Sprintf("%d devices and %d slots; at most %d and %d", len(c.Devices), len(c.Slots), MaxBenchDevices, domain.MaxSlotsPerMachine)
	}
	if !(c.Seconds >= 0 && c.Seconds <= maxBenchSeconds) || !(c.Latency >= 0 && c.Latency <= maxBenchSeconds) {
		return "its times are no times"
	}
	for _, f := range c.figures() {
		if !(f.Value >= 0 && f.Value <= MaxScore) {
			return fmt.Sprintf("a %s of %g", f.Figure, f.Value)
		}
	}
	return ""
}

// known is the score without the figures that no machine can have: logs from before they were judged may hold some.
func (c Score) known() Score {
	c.Devices = slices.Clone(c.Devices)
	figures := []*float64{&c.Disk, &c.Up, &c.Down}
	for i := range c.Devices {
		figures = append(figures, &c.Devices[i].Flops, &c.Devices[i].Memory)
	}
	for _, f := range figures {
		if !(*f >= MinScore && *f <= MaxScore) {
			*f = 0
		}
	}
	return c
}

// figures lists what can be compared with earlier benchmarks, unmeasured ones as 0.
func (c Score) figures() []Shortfall {
	var out []Shortfall
	for _, d := range c.Devices {
		out = append(out, Shortfall{Device: d.Device, Figure: Matrix, Value: d.Flops}, Shortfall{Device: d.Device, Figure: Memory, Value: d.Memory})
	}
	return append(out, Shortfall{Figure: Disk, Value: c.Disk}, Shortfall{Figure: Up, Value: c.Up}, Shortfall{Figure: Down, Value: c.Down})
}

// shortfalls are the figures that are below Slump of what is usual.
func (s *State) shortfalls(c Score) []Shortfall {
	if s.AskedAnew {
		return nil
	}
	var out []Shortfall
	for _, f := range c.figures() {
		f.Usual = s.usual(f.Device, f.Figure)
		if f.Value > 0 && f.Value < Slump*f.Usual {
			out = append(out, f)
		}
	}
	return out
}

// usual is the median of what is remembered, 0 when nothing is.
func (s *State) usual(device string, f Figure) float64 {
	i := slices.IndexFunc(s.Usual, func(u Usual) bool { return u.Device == device && u.Figure == f })
	if i < 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(s.Usual[i].Values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func sameFigures(a, b []Shortfall) bool {
	return slices.EqualFunc(a, b, func(x, y Shortfall) bool { return x.Device == y.Device && x.Figure == y.Figure })
}

// evolveBench makes new lists: a copy of the state keeps its own.
func (s *State) evolveBench(d *Benchmarked, at time.Time) {
	s.Bench = &Bench{Number: d.Number, Reason: d.Reason, At: at, Score: d.Score.known()}
	old := s.Usual
	if s.AskedAnew {
		old, s.Slow = nil, nil
	}
	s.AskedAnew = false
	next := slices.Clone(old)
	for _, f := range s.Bench.figures() {
		slow := slices.ContainsFunc(d.Short, func(k Shortfall) bool { return k.Device == f.Device && k.Figure == f.Figure })
		if f.Value == 0 || slow {
			continue
		}
		var v []float64
		if i := slices.IndexFunc(next, func(u Usual) bool { return u.Device == f.Device && u.Figure == f.Figure }); i >= 0 {
			v = next[i].Values
			next = slices.Delete(next, i, i+1) // what is measured moves to the end: series that are not measured any more go first
		}
		v = append(slices.Clone(v), f.Value)
		next = append(next, Usual{Device: f.Device, Figure: f.Figure, Values: v[max(0, len(v)-UsualOf):]})
	}
	s.Usual = next[max(0, len(next)-maxUsual):]
}

// Said is the figure for people.
func (f Shortfall) Said() string {
	name := string(f.Figure)
	switch {
	case f.Device != "":
		name += " of " + f.Device
	case f.Figure == Matrix || f.Figure == Memory:
		name += " of the CPU"
	}
	return fmt.Sprintf("%s %s, %.0f %% below its usual %s", name, amount(f.Figure, f.Value), 100*(1-f.Value/f.Usual), amount(f.Figure, f.Usual))
}

// amount writes a figure with its unit.
func amount(f Figure, v float64) string {
	if f == Matrix {
		return Amount(v, "FLOP/s")
	}
	return Amount(v, "B/s")
}

// Amount writes v with a power of 1,000.
func Amount(v float64, unit string) string {
	for _, p := range [...]struct {
		name string
		size float64
	}{{"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"k", 1e3}} {
		if v >= p.size {
			return fmt.Sprintf("%.3g %s%s", v/p.size, p.name, unit)
		}
	}
	return fmt.Sprintf("%.3g %s", v, unit)
}
