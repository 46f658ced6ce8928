package hub

import (
	"testing"
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
)

// A machine is measured once when it joins, again when its driver or its GPUs are others, and when its owner asks; what it says twice
// is recorded once.
func TestBenchmarksOfAMachine(t *testing.T) {
	w := newWorld(t)
	a := w.enrol("a", 2, 2)
	measure := func(want int, s machine.Score) {
		t.Helper()
		w.sync(a)
		if a.last.Bench != want {
			t.Fatalf("benchmark %d is wanted, want %d", a.last.Bench, want)
		}
		for range 2 { // the first reply may be lost
			a.bench = &wire.Bench{Number: want, Score: s}
			w.sync(a)
		}
		if a.last.Bench != 0 {
			t.Fatalf("benchmark %d is still wanted", a.last.Bench)
		}
	}
	score := func(flops float64, driver string, slots ...string) machine.Score {
		return machine.Score{Devices: []machine.DeviceScore{{Flops: flops}}, Driver: driver, Slots: slots}
	}
	measure(1, score(100, "550.1"))
	a.vitals = &machine.Vitals{Driver: "550.1"}
	w.sync(a)
	w.pass(time.Minute)
	if a.last.Bench != 0 {
		t.Fatal("nothing has changed and it is wanted again")
	}
	a.vitals = &machine.Vitals{Driver: "560.2"}
	w.sync(a)
	measure(2, score(60, "560.2"))
	if m := w.core.fold.machines["a"]; len(m.Slow) != 1 || len(find[*machine.BecameSlow](w)) != 1 {
		t.Errorf("slow: %v", m.Slow)
	}
	a.vitals = &machine.Vitals{Driver: "560.2", SlotGPUs: []string{"GPU-a", ""}}
	w.sync(a)
	measure(3, score(100, "560.2", "GPU-a", ""))
	w.must(w.do(event.KindMachine, "a", machine.AskBench{}))
	measure(4, score(101, "560.2", "GPU-a", ""))
	var reasons []string
	for _, e := range find[*machine.Benchmarked](w) {
		reasons = append(reasons, e.Reason)
	}
	want := []string{"the machine joined", "its driver changed from 550.1 to 560.2", "its slots compute on other devices than before", "asked by the owner"}
	if len(reasons) != 4 {
		t.Fatalf("%q", reasons)
	}
	for i := range want {
		if reasons[i] != want[i] {
			t.Errorf("%d: %q", i, reasons[i])
		}
	}
	if len(find[*machine.Recovered](w)) != 1 {
		t.Error("it never recovered")
	}
	if p := w.core.fold.machines["a"].Power(1, false); p != 101 {
		t.Errorf("the slot of the CPU has %v", p)
	}
}

// A machine that its owner wants left alone is not measured; one whose GPU is gone is.
func TestAMachineThatRestsIsNotMeasured(t *testing.T) {
	w := newWorld(t)
	a := w.enrol("a", 2, 2)
	w.sync(a)
	wanted := func(what string, want int) {
		t.Helper()
		w.sync(a)
		if a.last.Bench != want {
			t.Errorf("%s: benchmark %d is wanted, want %d", what, a.last.Bench, want)
		}
	}
	wanted("idle", 1)
	for cause, want := range map[machine.Cause]int{machine.ByHours: 0, machine.ByOthers: 0, machine.ByAbsence: 1} {
		a.away = map[int]*wire.Away{1: {Cause: cause, Reason: "x"}}
		wanted(string(cause), want)
		a.away = nil
		w.sync(a)
	}
	w.must(w.do(event.KindMachine, "a", machine.Pause{Slots: []int{0}}))
	wanted("paused", 0)
	w.must(w.do(event.KindMachine, "a", machine.Resume{}))
	wanted("resumed", 1)
	w.must(w.do(event.KindMachine, "a", machine.Drain{}))
	wanted("draining", 0)
}
