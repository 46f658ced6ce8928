package match_test

import (
	"testing"

	"tensorturn/domain/machine"
	"tensorturn/domain/match"
	"tensorturn/domain/run"
)

// What a step took is believed up to what its machine has, each figure for itself.
func TestPossible(t *testing.T) {
	told := &machine.Vitals{Memory: machine.Space{Total: 100}, SlotGPUs: []string{"g", ""},
		GPUs: []machine.GPU{{UUID: "g", Memory: machine.Space{Total: 10}}}}
	for name, c := range map[string]struct {
		vitals     *machine.Vitals
		slot       int
		took, want run.Memory
	}{
		"all of it":               {told, 0, run.Memory{Host: 100, Device: 10}, run.Memory{Host: 100, Device: 10}},
		"more memory":             {told, 0, run.Memory{Host: 101, Device: 10}, run.Memory{Device: 10}},
		"more of the GPU's":       {told, 0, run.Memory{Host: 100, Device: 11}, run.Memory{Host: 100}},
		"a GPU's on the CPU":      {told, 1, run.Memory{Host: 100, Device: 1}, run.Memory{Host: 100}},
		"a slot that is not told": {told, 2, run.Memory{Host: 1, Device: 1}, run.Memory{Host: 1}},
		"nothing told":            {nil, 0, run.Memory{Host: 1, Device: 1}, run.Memory{}},
	} {
		m := match.Machine{Vitals: c.vitals}
		if got := m.Possible(c.slot, c.took); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
