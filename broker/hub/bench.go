package hub

import (
	"fmt"
	"slices"

	"tensorturn/domain/machine"
)

// bench takes in what the machine has measured of its speed, and wants it measured anew when its driver or its GPUs are others.
func (b *batch) bench(in Sync) {
	if got := in.Request.Bench; got != nil {
		b.word(in.Machine, machine.RecordBench{Number: got.Number, Score: got.Score})
	}
	if why := changedHardware(b.c.fold.machines[in.Machine], in.Request.Beat.Vitals); why != "" {
		b.word(in.Machine, machine.AskBench{Reason: why})
	}
}

// changedHardware says what differs from when the machine was last measured, empty when nothing does or nothing is known.
func changedHardware(m *machine.State, v *machine.Vitals) string {
	if v == nil || m.Bench == nil {
		return ""
	}
	known := func(slots []string) []string { // no list means that all are of the CPU
		if slices.ContainsFunc(slots, func(s string) bool { return s != "" }) {
			return slots
		}
		return nil
	}
	switch {
	case v.Driver != "" && v.Driver != m.Bench.Driver && m.Bench.Driver != "":
		return fmt.Sprintf("its driver changed from %s to %s", m.Bench.Driver, v.Driver)
	case !slices.Equal(known(v.SlotGPUs), known(m.Bench.Slots)):
		return "its slots compute on other devices than before"
	}
	return ""
}
