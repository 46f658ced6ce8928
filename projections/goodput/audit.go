package goodput

import (
	"fmt"
	"slices"
)

// roundOff is what sums of seconds may differ by: they were whole nanoseconds before they were floating-point ones.
const roundOff = 1e-6

// Audit holds a report against what must be true of every one: the kinds of each row sum to its connected seconds, the slots to the total,
// nothing is negative, and nobody was there for longer than the run. Tests and the simulator call it on every log they have.
func (r Report) Audit() error {
	sum := map[Kind]float64{}
	for _, w := range append(slices.Clone(r.Slots), r.Total) {
		if err := w.audit(r.Elapsed); err != nil {
			return err
		}
		for _, k := range Kinds() {
			if w.Slot != "" {
				sum[k] += w.Seconds[k]
			}
		}
	}
	for _, k := range Kinds() {
		if !near(sum[k], r.Total.Seconds[k]) {
			return fmt.Errorf("the slots have %v s of %s, the total %v", sum[k], k, r.Total.Seconds[k])
		}
	}
	return nil
}

func (r Row) audit(elapsed float64) error {
	all := 0.0
	for _, k := range Kinds() {
		if r.Seconds[k] < 0 {
			return fmt.Errorf("%s has %v s of %s", r.Slot, r.Seconds[k], k)
		}
		all += r.Seconds[k]
	}
	switch {
	case !near(all, r.Connected):
		return fmt.Errorf("%s: the kinds sum to %v s, %v are connected", r.Slot, all, r.Connected)
	case r.Slot != "" && r.Connected+r.Elsewhere > elapsed+roundOff:
		return fmt.Errorf("%s was connected for %v s, and for %v elsewhere, of %v", r.Slot, r.Connected, r.Elsewhere, elapsed)
	case r.Goodput < 0 || r.Goodput > 1 || r.Efficiency < 0 || r.Samples < 0 || r.Elsewhere < 0:
		return fmt.Errorf("%s: goodput %v, efficiency %v, %d samples, %v s elsewhere", r.Slot, r.Goodput, r.Efficiency, r.Samples, r.Elsewhere)
	}
	for k := range r.Seconds {
		if !slices.Contains(Kinds(), k) {
			return fmt.Errorf("%s: %q is no kind", r.Slot, k)
		}
	}
	return nil
}

func near(a, b float64) bool { return max(a-b, b-a) <= roundOff }
