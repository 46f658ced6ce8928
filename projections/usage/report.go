package usage

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Report is what was used since a moment, by whom.
type Report struct {
	Since    *time.Time `json:"since,omitempty"` // begin of the hour that was asked for; absent: from the beginning
	Until    time.Time  `json:"until"`           // of the newest record
	Total    Counts     `json:"total"`
	Runs     []Row      `json:"runs"`     // by id
	Machines []Row      `json:"machines"` // by id
	Keys     []Row      `json:"keys"`     // by id
}

// Row is what one of them used.
type Row struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	Counts
}

// Since sums up what was used from the hour of since on; the zero time is the beginning. Cells that have become days, or
// the time before, count when they begin in that hour or later.
func (v *View) Since(since time.Time) Report {
	out := Report{Until: v.newest, Runs: []Row{}, Machines: []Row{}, Keys: []Row{}}
	first := int64(0)
	if !since.IsZero() {
		hour := since.UTC().Truncate(time.Hour)
		out.Since, first = &hour, hour.Unix()
	}
	runs, machines, keys := map[string]Counts{}, map[string]Counts{}, map[string]Counts{}
	add := func(k cell, c Counts) {
		if k.from < first {
			return
		}
		out.Total.add(c)
		into(runs, string(k.run), c)
		into(machines, string(k.machine), c)
		into(keys, string(k.key), c)
	}
	for k, c := range v.cells { // integers: order does not matter
		add(k, c)
	}
	for slot, l := range v.leases {
		spread(l.since, v.newest, func(at time.Time, d time.Duration) {
			add(cell{from: at.UTC().Truncate(time.Hour).Unix(), run: l.run, machine: slot.Machine()}, Counts{Micros: d.Microseconds()})
		})
	}
	out.Total = out.Total.told()
	out.Runs, out.Machines, out.Keys = rows(runs), rows(machines), rows(keys)
	return out
}

func into(sums map[string]Counts, id string, c Counts) {
	if id != "" {
		sum := sums[id]
		sum.add(c)
		sums[id] = sum
	}
}

func rows(sums map[string]Counts) []Row {
	out := make([]Row, 0, len(sums))
	for _, id := range slices.SortedFunc(maps.Keys(sums), cmp.Compare[string]) {
		out = append(out, Row{ID: id, Counts: sums[id].told()})
	}
	return out
}
