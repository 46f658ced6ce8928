package machine_test

import (
	"fmt"
	"math"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/machine"
)

// What a machine goes on measuring is remembered, however many GPUs come and go beside it.
func TestUsualFiguresOutliveSoldGPUs(t *testing.T) {
	l := &life{}
	must := func(c machine.Command) {
		t.Helper()
		if _, err := l.do(c); err != nil {
			t.Fatal(err)
		}
	}
	must(machine.Enrol{ID: "m-1", Name: "attic", NKey: "Um", Account: "Am", Slots: 1})
	must(machine.Connect{Incarnation: "i-1"})
	for n := 1; n <= 6; n++ {
		if n > 1 {
			must(machine.AskBench{})
		}
		score := machine.Score{Devices: []machine.DeviceScore{{Flops: 100, Memory: 100}}}
		for i := range machine.MaxGPUs {
			score.Devices = append(score.Devices, machine.DeviceScore{Device: fmt.Sprintf("GPU-%d-%d", n, i), Flops: 100, Memory: 100})
		}
		must(machine.RecordBench{Number: n, Score: score})
		if got := remembered(l.s, ""); got != min(n, machine.UsualOf) {
			t.Errorf("benchmark %d: %d measurements of the CPU are remembered", n, got)
		}
	}
	if old, present := remembered(l.s, "GPU-4-0"), remembered(l.s, "GPU-6-0"); old != 0 || present != 1 {
		t.Errorf("%d measurements of a sold GPU, %d of one that is there", old, present)
	}
}

// remembered counts the measurements of a device's matrix product that its machine remembers.
func remembered(s *machine.State, device string) int {
	for _, u := range s.Usual {
		if u.Device == device && u.Figure == machine.Matrix {
			return len(u.Values)
		}
	}
	return 0
}

// No figure of a benchmark is recorded that is none, or beyond what a machine can do.
func TestScoresOutOfRangeAreRefused(t *testing.T) {
	for value, fine := range map[float64]bool{0: true, machine.MaxScore: true, math.Nextafter(machine.MaxScore, math.Inf(1)): false, -1: false, math.NaN(): false, math.Inf(1): false} {
		l := &life{}
		if _, err := l.do(machine.Enrol{ID: "m-1", Name: "attic", NKey: "Um", Account: "Am", Slots: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.do(machine.Connect{Incarnation: "i-1"}); err != nil {
			t.Fatal(err)
		}
		_, err := l.do(machine.RecordBench{Number: 1, Score: machine.Score{Disk: value}})
		if fine && err != nil || !fine && domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%v: %v", value, err)
		}
	}
}
