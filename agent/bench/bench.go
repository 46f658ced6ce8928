package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/machine"
)

// Link is the way to the hub.
type Link interface {
	// Trip is a round trip without bytes.
	Trip(ctx context.Context) error
	// Send and Fetch move n bytes, at most 8 MiB, which nobody keeps.
	Send(ctx context.Context, n int) error
	Fetch(ctx context.Context, n int) error
}

// Options is what a Bench needs.
type Options struct {
	Dir      string   // on the disk that is measured
	Slots    []string // by slot: the UUID of its GPU, empty for the CPU
	Python   string   // interpreter with torch, empty for python3 on PATH
	Throttle float64  // fraction of its speed at which this machine trains; 0 and 1 leave it alone
	// Vitals gives the names of CPU and GPUs, the driver and the free memory.
	Vitals func() (*machine.Vitals, uint64)
	Link   Link
	// Load gives the share of all cores that programs use now; nil: as the system says.
	Load func(context.Context) float64
}

// Bench measures one machine. It keeps what an interrupted benchmark had measured already.
type Bench struct {
	opts Options
	part map[string]func(context.Context, *machine.Score) error

	done  map[string]bool
	tries map[string]int
	score machine.Score
	spent time.Duration
}

// maxTries is how often a part may fail until it is left out.
const maxTries = 3

// order of the parts: the link first, since it is what nothing else tells.
var order = [...]string{"link", "cpu", "memory", "disk", "gpus"}

// New makes a Bench.
func New(o Options) *Bench {
	if o.Load == nil {
		o.Load = load
	}
	b := &Bench{opts: o}
	b.part = map[string]func(context.Context, *machine.Score) error{"link": b.link, "cpu": b.cpu, "memory": b.memory, "disk": b.disk, "gpus": b.gpus}
	return b
}

// Measure takes one benchmark, or goes on with the one that was interrupted. It ends soon after ctx does, with its error. Any other
// error says that a part failed for now: call again later.
func (b *Bench) Measure(ctx context.Context) (machine.Score, error) {
	if b.done == nil {
		b.done, b.tries, b.score, b.spent = map[string]bool{}, map[string]int{}, b.blank(), 0
	}
	began := time.Now()
	defer func() { b.spent += time.Since(began) }()
	var failed error
	for _, name := range order {
		if b.done[name] {
			continue
		}
		err := b.part[name](ctx, &b.score)
		if ctx.Err() != nil {
			return machine.Score{}, ctx.Err()
		}
		if err != nil {
			if b.tries[name]++; b.tries[name] < maxTries && later(err) {
				failed = fmt.Errorf("measure %s: %w", name, err)
				continue
			}
			b.leave(name + ": " + err.Error())
		}
		b.done[name] = true
	}
	if failed != nil {
		return machine.Score{}, failed
	}
	out := b.score
	out.Seconds = (b.spent + time.Since(began)).Seconds()
	b.slow(&out)
	b.done = nil
	return out, nil
}

// later reports whether a failure may pass.
func later(err error) bool { return domain.KindOf(err) == domain.KindUnavailable }

func (b *Bench) leave(why string) {
	if len(b.score.Left) < machine.MaxBenchLeft {
		b.score.Left = append(b.score.Left, domain.Clip(why, domain.MaxReasonLength))
	}
}

// blank is a score that names the devices.
func (b *Bench) blank() machine.Score {
	v, _ := b.opts.Vitals()
	s := machine.Score{Driver: v.Driver, Devices: []machine.DeviceScore{{Name: v.CPU}}}
	for _, uuid := range b.opts.Slots {
		if uuid == "" || slices.ContainsFunc(s.Devices, func(d machine.DeviceScore) bool { return d.Device == uuid }) {
			continue
		}
		d := machine.DeviceScore{Device: uuid}
		for _, g := range v.GPUs {
			if g.UUID == uuid {
				d.Name = g.Name
			}
		}
		s.Devices = append(s.Devices, d)
	}
	if len(s.Devices) > 1 {
		s.Slots = slices.Clone(b.opts.Slots)
	}
	return s
}

// slow makes the score that of a throttled machine.
func (b *Bench) slow(s *machine.Score) {
	if t := b.opts.Throttle; t > 0 && t < 1 {
		s.Devices = slices.Clone(s.Devices)
		for i := range s.Devices {
			s.Devices[i].Flops *= t
		}
	}
}
