package match

import "tensorturn/domain/run"

// Possible gives of what a slot says that a step took what its machine could have held, by what that said of itself: a figure
// beyond it, or of a machine that has not told its memory, is 0, as if it was not measured. A run is placed by this figure, so
// that one that nobody can hold would keep it waiting for ever.
func (m *Machine) Possible(slot int, took run.Memory) run.Memory {
	if m.Vitals == nil || took.Host > m.Vitals.Memory.Total {
		took.Host = 0
	}
	if g := m.Vitals.GPU(slot); g == nil || took.Device > g.Memory.Total {
		took.Device = 0
	}
	return took
}
