package device

import (
	"context"
	"slices"
	"sync"
	"time"

	"tensorturn/domain/machine"
)

// hostEvery is the pause between readings of cores, memory, disk and network: one per sync of an agent.
const hostEvery = 4 * time.Second

// steady is how long a GPU that was gone must have answered to count as back.
const steady = 10 * time.Second

// Machine is the machine an agent runs on: its GPUs and everything else, with the slots that were given GPUs. Start, Stop, and Vitals
// from any goroutine.
type Machine struct {
	*Watcher
	dir    string // whose disk is measured
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	host   machine.Vitals
	serial uint64
	slots  []string
	gone   map[string]absence // by UUID; as many as there are GPUs
}

// absence is when and why a GPU was last seen to be gone.
type absence struct {
	why  string
	seen time.Time
}

// NewMachine makes a Machine that measures nothing yet.
func NewMachine(o Options, dir string) *Machine {
	return &Machine{Watcher: NewWatcher(o), dir: dir, gone: map[string]absence{}}
}

// Start begins to measure.
func (m *Machine) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.Watcher.Start()
	m.done.Go(func() { m.measure(ctx) })
}

// Stop ends measuring.
func (m *Machine) Stop() {
	m.cancel()
	m.done.Wait()
	m.Watcher.Stop()
}

// Give says which GPU each slot has, as Assign made it.
func (m *Machine) Give(slots []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slots = slices.Clone(slots)
	m.serial++
}

// Vitals gives the newest measurements and a number that grows when they are newer. It never waits for hardware.
func (m *Machine) Vitals() (*machine.Vitals, uint64) {
	r, serial := m.Latest()
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.host
	v.Driver, v.CUDA, v.Trouble, v.GPUs = r.Driver, r.CUDA, r.Trouble, r.GPUs
	if slices.ContainsFunc(m.slots, func(s string) bool { return s != "" }) {
		v.SlotGPUs = slices.Clone(m.slots)
	}
	return &v, serial + m.serial
}

// Absent says for a slot why its GPU cannot be used now; empty for a slot that can work. A GPU that has come back counts as gone until it
// has stayed for steady: one that comes and goes must not fill the log.
func (m *Machine) Absent(slot int) string {
	v, _ := m.Vitals()
	g := v.GPU(slot)
	if g == nil {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	was, known := m.gone[g.UUID]
	switch {
	case g.Gone != "":
		m.gone[g.UUID] = absence{why: g.Gone, seen: now}
		return g.Gone
	case known && now.Sub(was.seen) < steady:
		return was.why
	}
	delete(m.gone, g.UUID)
	return ""
}

func (m *Machine) measure(ctx context.Context) {
	name := processor()
	tick := time.NewTicker(hostEvery)
	defer tick.Stop()
	for {
		v := machine.Vitals{CPU: name}
		host(&v, m.dir)
		m.mu.Lock()
		m.host = v
		m.serial++
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
