package plan_test

import (
	"fmt"
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/domain/match"
	"tensorturn/domain/plan"
	"tensorturn/domain/run"
)

// crowd is a pool of 64 machines of 8 slots whose first run holds every slot but one of a CPU, while others wait for a GPU.
func crowd(b tester, waiting int) plan.Snapshot {
	s := newStory(b, 120*time.Second)
	var machines []match.Machine
	for m := range 64 {
		id := domain.MachineID(fmt.Sprintf("m-%02d", m))
		v := &machine.Vitals{Memory: machine.Space{Total: 1 << 40}}
		for i := range 8 {
			s.slot(domain.Slot(id, i)).Speed = 100
			g := machine.GPU{UUID: fmt.Sprintf("%s-%d", id, i), Name: "NVIDIA RTX 3090", Memory: machine.Space{Total: 24 << 30}}
			v.GPUs, v.SlotGPUs = append(v.GPUs, g), append(v.SlotGPUs, g.UUID)
		}
		if m == 63 {
			v.SlotGPUs[7] = ""
		}
		machines = append(machines, match.Machine{ID: id, Name: string(id), Slots: 8, Cores: 64, Vitals: v})
	}
	s.submit("r-0", 511*1000*10, 1000, 511*10, 4, 0, 0, 0)
	s.settle()
	s.initialise("r-0")
	s.settle()
	needs := &run.Requirements{GPU: &run.GPUNeed{Model: "RTX*", Count: 1}}
	s.must("r-0", run.ExpireLease{Slot: "m-63/7", Reason: "no contact"})
	s.run("r-0").Spec.Requirements = needs
	s.settle()
	if n := len(s.run("r-0").Leases); n != 511 {
		b.Fatalf("%d leases", n)
	}
	for i := range waiting {
		id := domain.RunID(fmt.Sprintf("r-%d", i+1))
		s.submit(id, 24000, 1000, 24, 1, 0, 0, 0)
		s.run(id).Spec.Requirements = needs
	}
	snap := s.snapshot()
	snap.Machines = machines
	return snap
}

// Runs that cannot get a slot draw no board: a plan takes as much memory with a hundred of them as with none.
func TestWaitingCostsNoBoard(t *testing.T) {
	allocs := func(waiting int) float64 {
		snap := crowd(t, waiting)
		return testing.AllocsPerRun(10, func() { plan.Next(snap) })
	}
	if none, many := allocs(0), allocs(100); many > none+2 {
		t.Errorf("%v allocations with a hundred runs waiting, %v with none", many, none)
	}
}

// BenchmarkWaiting is one call of a hub's step while runs wait for slots: it must not cost what runs times slots do.
func BenchmarkWaiting(b *testing.B) {
	for _, n := range []int{0, 10, 100} {
		snap := crowd(b, n)
		b.Run(fmt.Sprintf("%d-runs", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got := plan.Next(snap); len(got) > 0 {
					b.Fatalf("%d actions: %+v", len(got), got[0])
				}
			}
		})
	}
}
