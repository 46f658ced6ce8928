// Package usage is the view of what was used by whom: slot-seconds, samples, steps, bytes up and down, and inference
// requests, for each run, machine and key, folded from the log alone. It holds counts and no story; nothing is decided by it
// and nobody is charged by it. The gateway reads it, for `tensorturn usage`.
//
// What the figures mean, and from which facts they follow:
//
//   - slot-seconds: from a lease's grant to its end, by the records' times; a lease under way counts up to the newest record.
//   - samples, steps: what the ledger counts (contribution.accepted, less contribution.revoked; a member's checkpoints).
//   - bytes up: the deltas that reached the hub, refused ones too, and the first base; as stored, without what a cut link sent twice.
//   - bytes down: the bases a machine began to work on, each once (round.merged says how large they are), and of the data the
//     part that it has trained, at most all of it; a program's packed code, and the data of a member, whole.
//   - of an ensemble: samples by checkpoints, steps by samples, and up the checkpoints and the weights; older records do not
//     say how large a checkpoint was.
//   - requests, rows: inference.counted, a digest a minute.
package usage

import (
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/freeze"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
)

// Counts is what was used. Times are whole microseconds, so that no order of addition changes a sum.
type Counts struct {
	Micros      int64   `json:"-"`
	SlotSeconds float64 `json:"slot_seconds"` // Micros for people, set in reports alone
	Samples     int64   `json:"samples"`
	Steps       int64   `json:"steps"`
	BytesUp     int64   `json:"bytes_up"`
	BytesDown   int64   `json:"bytes_down"`
	Requests    int64   `json:"requests"`
	Rows        int64   `json:"rows"`
}

// add adds o to c.
func (c *Counts) add(o Counts) {
	c.Micros += o.Micros
	c.Samples += o.Samples
	c.Steps += o.Steps
	c.BytesUp += o.BytesUp
	c.BytesDown += o.BytesDown
	c.Requests += o.Requests
	c.Rows += o.Rows
}

// told is c with its times for people.
func (c Counts) told() Counts {
	c.SlotSeconds = float64(c.Micros) / 1e6
	return c
}

// cell is what was used in one stretch of time by one machine for one run, or by one key of a model that a run made.
type cell struct {
	from    int64 // beginning of its hour, or of its day, or 0 for all before; unix seconds
	run     domain.RunID
	machine domain.MachineID
	key     domain.KeyID
}

// leased is a lease under way.
type leased struct {
	run   domain.RunID
	since time.Time
}

// View holds the counts by hour.
type View struct {
	cells  map[cell]Counts
	leases map[domain.SlotID]leased
	work   map[domain.RunID]*work // of runs that have not ended
	newest time.Time              // of the records seen
}

// New returns an empty view.
func New() *View {
	return &View{cells: map[cell]Counts{}, leases: map[domain.SlotID]leased{}, work: map[domain.RunID]*work{}}
}

// Name names the view.
func (v *View) Name() string { return "usage" }

// Part names what the view holds, for snapshots.
func (v *View) Part() freeze.Part {
	return freeze.Part{Name: v.Name(), Values: []any{&v.cells, &v.leases, &v.work, &v.newest}}
}

// Apply folds one event.
func (v *View) Apply(e event.Envelope) {
	if e.Time.After(v.newest) {
		v.newest = e.Time
	}
	switch e.Kind {
	case event.KindRun:
		v.applyRun(domain.RunID(e.Agg), e)
	case event.KindPool:
		if d, ok := e.Data.(*pool.InferenceCounted); ok {
			v.count(time.UnixMicro(d.Minute), cell{run: d.Run, key: d.Key}, Counts{Requests: d.Requests, Rows: d.Rows})
		}
	}
}

// applyRun counts leases; what is done under them is the run's work.
func (v *View) applyRun(id domain.RunID, e event.Envelope) {
	if d, ok := e.Data.(*run.Submitted); ok {
		v.work[id] = newWork(d)
		return
	}
	w := v.work[id]
	if w == nil {
		return
	}
	switch d := e.Data.(type) {
	case *run.LeaseGranted:
		v.leases[d.Slot] = leased{id, e.Time}
	case *run.LeaseReleased:
		v.ended(d.Slot, e.Time)
	case *run.LeaseExpired:
		v.ended(d.Slot, e.Time)
	case *run.TaskFailed:
		v.ended(d.Slot, e.Time)
	case *run.EvaluationFailed:
		v.ended(d.Slot, e.Time)
	case *run.Completed, *run.Cancelled, *run.Failed:
		for slot, l := range v.leases { // each is counted for itself: order does not matter
			if l.run == id {
				v.ended(slot, e.Time)
			}
		}
		delete(v.work, id)
		return
	}
	w.apply(e, func(m domain.MachineID, c Counts) { v.count(e.Time, cell{run: id, machine: m}, c) })
}

// ended counts a lease that is over.
func (v *View) ended(slot domain.SlotID, at time.Time) {
	if l, ok := v.leases[slot]; ok {
		delete(v.leases, slot)
		spread(l.since, at, func(hour time.Time, d time.Duration) {
			v.count(hour, cell{run: l.run, machine: slot.Machine()}, Counts{Micros: d.Microseconds()})
		})
	}
}

// spread cuts a stretch of time at the full hours.
func spread(from, to time.Time, each func(at time.Time, d time.Duration)) {
	for from.Before(to) {
		end := from.Truncate(time.Hour).Add(time.Hour)
		if end.After(to) {
			end = to
		}
		each(from, end.Sub(from))
		from = end
	}
}

// count adds to the cell of the hour.
func (v *View) count(at time.Time, k cell, c Counts) {
	if c == (Counts{}) {
		return
	}
	k.from = at.UTC().Truncate(time.Hour).Unix()
	if _, known := v.cells[k]; !known && len(v.cells) >= maxCells {
		v.coarsen()
	}
	sum := v.cells[k]
	sum.add(c)
	v.cells[k] = sum
}
