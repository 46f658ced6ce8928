package usage

import (
	"maps"
	"slices"
	"time"
)

// Limits of what is kept. A pool of ten machines that never rest fills it in nine months; then hours that are long past
// become days, days the time before, and at last the runs of that time are counted together.
const (
	maxCells   = 1 << 16
	keepHours  = 31 * 24 * time.Hour
	keepDays   = 366 * 24 * time.Hour
	maxAfter   = maxCells / 2 // cells left by a coarsening, so that it is rare
	secondsDay = 24 * 60 * 60
)

// Earlier is the run that stands for all whose own counts were given up.
const Earlier = "(earlier runs)"

// coarsen makes room: the oldest cells lose detail first.
func (v *View) coarsen() {
	now := v.newest.Unix()
	day := func(k cell) cell { k.from -= k.from % secondsDay; return k }
	before := func(k cell) cell { k.from = 0; return k }
	nameless := func(k cell) cell { k.from, k.run = 0, Earlier; return k }
	for _, step := range []struct {
		age   time.Duration
		merge func(cell) cell
	}{{keepHours, day}, {keepDays, before}, {keepHours, before}, {keepDays, nameless}, {keepHours, nameless}, {0, day}, {0, nameless}} {
		if len(v.cells) <= maxAfter {
			return
		}
		v.merge(now-int64(step.age/time.Second), step.merge)
	}
}

// merge moves the cells that began before the time into coarser ones. Sums of integers do not depend on their order.
func (v *View) merge(before int64, coarser func(cell) cell) {
	for _, k := range slices.Collect(maps.Keys(v.cells)) {
		if k.from >= before {
			continue
		}
		if to := coarser(k); to != k {
			sum := v.cells[to]
			sum.add(v.cells[k])
			v.cells[to] = sum
			delete(v.cells, k)
		}
	}
}
