package goodput

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// Report says where the time of a run went.
type Report struct {
	Run     domain.RunID `json:"run"`
	From    time.Time    `json:"from"`
	Until   time.Time    `json:"until"` // of the run's end, or of the newest record
	Ended   bool         `json:"ended"`
	Slots   []Row        `json:"slots"` // that had work of the run, by machine and number
	Total   Row          `json:"total"`
	Unused  []Unused     `json:"unused"`           // slots that were there and never had work of it
	Loss    Kind         `json:"greatest_loss"`    // empty where nothing was lost
	Change  string       `json:"change,omitempty"` // what would make less of it
	Elapsed float64      `json:"elapsed_seconds"`  // from From to Until
}

// Row is what became of the time of one slot, or of all.
type Row struct {
	Slot       domain.SlotID    `json:"slot,omitempty"` // empty in the total
	Name       string           `json:"name,omitempty"` // of its machine
	Seconds    map[Kind]float64 `json:"seconds"`        // by kind, without those that are zero; they sum to Connected
	Connected  float64          `json:"connected_seconds"`
	Elsewhere  float64          `json:"elsewhere_seconds"`  // under leases of other runs, no part of Connected
	Samples    int64            `json:"samples"`            // counted by the ledger
	Trained    int64            `json:"samples_trained"`    // whatever became of them
	Speed      float64          `json:"samples_per_second"` // while it trained; of the total, the sum of the slots'; 0: not known
	Goodput    float64          `json:"goodput"`            // seconds that trained what was counted / connected ones
	Efficiency float64          `json:"efficiency"`         // samples counted / (connected seconds × the slot's own speed), 0 when no speed is known
}

// Unused is a slot that could have been given work and was given none.
type Unused struct {
	Slot      domain.SlotID `json:"slot"`
	Name      string        `json:"name,omitempty"`
	Connected float64       `json:"connected_seconds"`
}

// Report sums up what the ledger has read. It changes nothing: events may follow. A run that the log does not know is not found; an
// ensemble is refused.
func (l *Ledger) Report() (Report, error) {
	op := "goodput of run " + string(l.id)
	switch {
	case !l.begun():
		return Report{}, domain.NotFound(op, "the log knows no such run", "list them with: tensorturn run list")
	case l.spec.Mode == run.ModeEnsemble:
		return Report{}, domain.Invalid(op, "it is an ensemble, and the log does not say how long a member's chunks took", "see what each member did with: tensorturn run show "+string(l.id))
	case l.full:
		return Report{}, domain.Invalid(op, fmt.Sprintf("more than %d slots were there", maxSlots), "")
	}
	r := Report{Run: l.id, From: later(l.submitted, l.from), Until: l.end(), Ended: l.over(), Slots: []Row{}, Unused: []Unused{}}
	r.Elapsed = max(0, r.Until.Sub(r.From).Seconds())
	total := tally{sums: map[Kind]time.Duration{}}
	possible := 0.0
	for _, slot := range slices.SortedFunc(maps.Keys(l.accounts), compareSlots) {
		t := l.accounts[slot].tally(r.Until, r.Ended)
		name := ""
		if m := l.machines[slot.Machine()]; m != nil {
			name = m.Name
		}
		if !l.accounts[slot].took {
			if t.long > 0 {
				r.Unused = append(r.Unused, Unused{slot, name, t.long.Seconds()})
			}
			continue
		}
		row := t.row()
		row.Slot, row.Name = slot, name
		r.Slots = append(r.Slots, row)
		total.add(t)
		possible += float64(row.Connected * row.Speed)
		r.Total.Speed += row.Speed
	}
	speed := r.Total.Speed
	r.Total = total.row()
	r.Total.Speed, r.Total.Efficiency = speed, share(float64(r.Total.Samples), possible)
	r.Loss = r.Total.loss()
	r.Change = r.Loss.Advice(l.spec)
	return r, nil
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// end is where the ledger ends.
func (l *Ledger) end() time.Time {
	switch {
	case l.over():
		return l.ended
	case !l.to.IsZero():
		return l.to
	}
	return l.newest
}

func compareSlots(a, b domain.SlotID) int {
	return cmp.Or(strings.Compare(string(a.Machine()), string(b.Machine())), cmp.Compare(a.Index(), b.Index()))
}

// loss is the kind that most was lost by, the first of equal ones.
func (r Row) loss() Kind {
	worst := Kind("")
	for _, k := range Kinds() {
		if k.Lost() && r.Seconds[k] > r.Seconds[worst] {
			worst = k
		}
	}
	return worst
}

// Loss is the kind by which most of the slot's time was lost, and its share of the connected seconds.
func (r Row) Loss() (Kind, float64) {
	k := r.loss()
	return k, share(r.Seconds[k], r.Connected)
}

// share is a quotient, 0 of nothing.
func share(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return part / whole
}

// tally is an account that is summed up.
type tally struct {
	sums             map[Kind]time.Duration
	long             time.Duration // all of them
	other, spent     time.Duration
	trained, counted int64
}

// tally sums the account up as of t, and leaves it as it is.
func (a account) tally(t time.Time, ended bool) tally {
	a.sums, a.pending = maps.Clone(a.sums), slices.Clone(a.pending)
	a.until(t)
	if !ended && a.unit == run.UnitTrain {
		a.rename(Underway, Between)
	}
	a.flush()
	for _, w := range a.held {
		a.sums[map[bool]Kind{true: Discarded, false: Held}[ended]] += w.long
	}
	for _, w := range a.late {
		a.sums[Discarded] += w.long
	}
	return tally{a.sums, a.long, a.other, a.spent, a.trained, a.counted}
}

func (t *tally) add(o tally) {
	for k, d := range o.sums { // whole nanoseconds: order does not matter
		t.sums[k] += d
	}
	t.long, t.other, t.spent = t.long+o.long, t.other+o.other, t.spent+o.spent
	t.trained, t.counted = t.trained+o.trained, t.counted+o.counted
}

func (t tally) row() Row {
	r := Row{Seconds: map[Kind]float64{}, Connected: t.long.Seconds(), Elsewhere: t.other.Seconds(), Samples: t.counted, Trained: t.trained}
	for k, d := range t.sums {
		if d != 0 {
			r.Seconds[k] = d.Seconds()
		}
	}
	if t.spent > 0 {
		r.Speed = float64(t.trained) / t.spent.Seconds()
	}
	r.Goodput = share(r.Seconds[Counted], r.Connected)
	r.Efficiency = share(float64(r.Samples), float64(r.Connected*r.Speed))
	return r
}
