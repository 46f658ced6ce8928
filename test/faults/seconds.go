package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

// What became of a slot's second.
const (
	counted   = "trained, counted"
	thrown    = "trained, thrown away"
	torn      = "trained, chunk torn off by a kill"
	between   = "between two chunks"
	sending   = "delta: made, sent, inspected"
	turned    = "after a contribution, to the next chunk"
	others    = "done, waiting for the others of the round"
	merging   = "waiting for the merge"
	opening   = "merged, waiting for the next round"
	preparing = "fetching the base, loading it"
	starting  = "after a failure: trainer, base"
	idle      = "without work"
	noHub     = "the hub is away" // and nothing to train
	noLink    = "the hub is back, the slot has not spoken"
)

// seconds is the ledger of one run: where each second went that a slot was connected.
type seconds map[string]float64

// stretch is a time in which a slot did one thing, as far as is known.
type stretch struct {
	what string
	long float64
}

// account follows one slot through the log. Between two chunks it keeps the stretches: the chunk that is told next ate the
// last of them, since its own seconds are known.
type account struct {
	sums    seconds
	at      time.Time
	now     string
	before  string  // what the slot did when the hub went away
	owed    float64 // seconds of chunks that were more than there was time, since clocks differ by milliseconds
	pending []stretch
	fresh   bool // the agent or the trainer has just begun
	away    bool
	held    map[domain.ChunkID]float64 // trained, and not counted yet
	chunks  int                        // trained, whatever became of them
	spent   float64                    // seconds of them
}

// until adds the stretch that ends at t.
func (a *account) until(t time.Time, next string) {
	if d := t.Sub(a.at).Seconds(); d > 0 {
		if !a.away {
			a.pending = append(a.pending, stretch{a.now, d})
		}
		a.at = t
	}
	a.now = next
}

// trained takes the chunks that were told at t: their seconds are the last ones before it.
func (a *account) trained(t time.Time, chunks map[domain.ChunkID]float64) {
	a.until(t, between)
	left := a.owed
	for _, c := range slices.Sorted(maps.Keys(chunks)) {
		a.sums[thrown] += a.held[c] // trained before, and once more now
		a.held[c] = chunks[c]
		left += chunks[c]
		a.chunks++
		a.spent += chunks[c]
	}
	for i := len(a.pending) - 1; i >= 0; i-- {
		eaten := min(left, a.pending[i].long)
		a.pending[i].long -= eaten
		left -= eaten
	}
	a.owed = left
	a.flush()
	a.fresh = false
}

// flush books what was no training.
func (a *account) flush() {
	for _, s := range a.pending {
		a.sums[s.what] += s.long
	}
	a.pending = nil
}

// broke ends what was under way: a slot that had chunks to train was training one.
func (a *account) broke(t time.Time, next string) {
	a.until(t, next)
	for i, s := range a.pending {
		if s.what == between || s.what == preparing {
			a.pending[i].what = torn
		}
	}
	a.flush()
	a.fresh = true
}

// rename gives the stretches since the last chunk their true name, which shows only later.
func (a *account) rename(from, to string) {
	for i := range a.pending {
		if a.pending[i].what == from {
			a.pending[i].what = to
		}
	}
	if a.now == from {
		a.now = to
	}
}

// moment is something that happened to one slot or, where that is empty, to all.
type moment struct {
	at   time.Time
	slot domain.SlotID
	do   func(*account)
}

// ledger tells where the seconds of the machines went between began and ended.
func (w *world) ledger(id domain.RunID, began, ended time.Time, there *presence, machines []string) map[domain.SlotID]*account {
	accounts := map[domain.SlotID]*account{}
	names := map[string]domain.SlotID{}
	for _, n := range machines {
		s := domain.Slot(w.machine(n).ID, 0)
		names[n] = s
		accounts[s] = &account{sums: seconds{}, at: began, now: between, held: map[domain.ChunkID]float64{}}
	}
	all := append(ofRun(w.Events(), id), there.moments(names)...)
	all = slices.DeleteFunc(all, func(m moment) bool { return m.at.After(ended) })
	slices.SortStableFunc(all, func(x, y moment) int { return x.at.Compare(y.at) })
	for _, m := range all {
		for s, a := range accounts {
			if m.slot == "" || m.slot == s {
				m.do(a)
			}
		}
	}
	for _, a := range accounts {
		a.until(ended, idle)
		a.lose()
		a.flush()
	}
	return accounts
}

// ofRun turns the log into moments. Chunks that were told at once are one moment.
func ofRun(events []event.Envelope, id domain.RunID) []moment {
	var out []moment
	told := map[domain.SlotID]map[domain.ChunkID]float64{}
	toldAt := map[domain.SlotID]time.Time{}
	for _, e := range events {
		if e.Agg != string(id) {
			continue
		}
		at := e.Time
		add := func(s domain.SlotID, do func(*account)) { out = append(out, moment{at, s, do}) }
		switch d := e.Data.(type) {
		case *run.ChunkTrained:
			if toldAt[d.Slot].Equal(at) {
				told[d.Slot][d.Chunk] = d.Seconds
				continue
			}
			chunks := map[domain.ChunkID]float64{d.Chunk: d.Seconds}
			told[d.Slot], toldAt[d.Slot] = chunks, at
			add(d.Slot, func(a *account) { a.trained(at, chunks) })
		case *run.LeaseGranted:
			add(d.Slot, func(a *account) {
				a.until(at, map[bool]string{true: starting, false: preparing}[a.fresh])
			})
		case *run.ContributionRequested:
			add(d.Slot, func(a *account) { a.until(at, sending) })
		case *run.DeltaAdopted:
			add(d.Slot, func(a *account) { a.until(at, sending) })
		case *run.ContributionAccepted:
			add(d.Slot, func(a *account) {
				a.until(at, map[bool]string{true: starting, false: turned}[a.fresh])
				for _, c := range d.Chunks {
					a.sums[counted] += a.held[c]
					delete(a.held, c)
				}
			})
		case *run.LeaseReleased:
			add(d.Slot, func(a *account) { a.until(at, others); a.rename(turned, others) })
		case *run.LeaseExpired:
			add(d.Slot, func(a *account) { a.broke(at, starting) })
		case *run.TaskFailed:
			add(d.Slot, func(a *account) { a.broke(at, starting) })
		case *run.RoundClosed:
			add("", func(a *account) { a.until(at, merging); a.lose() })
		case *run.RoundMerged:
			add("", func(a *account) { a.until(at, opening) })
		case *run.RoundOpened:
			add("", func(a *account) { a.until(at, idle) })
		}
	}
	return out
}

// back is what the slot does when the hub is back: it waits as before, or it may have nothing to train for want of a word.
func (a *account) back() string {
	if a.before == between || a.before == preparing {
		return noLink
	}
	return a.before
}

// lose books what the slot holds at the end of a round and nobody has counted.
func (a *account) lose() {
	for _, s := range a.held {
		a.sums[thrown] += s
	}
	clear(a.held)
}

// moments are the absences: of machines, whose time does not count, and of the hub.
func (p *presence) moments(names map[string]domain.SlotID) []moment {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []moment
	for _, g := range p.gone {
		out = append(out, moment{g.from, names[g.name], func(a *account) { a.broke(g.from, starting); a.away = true }})
		if !g.to.IsZero() {
			out = append(out, moment{g.to, names[g.name], func(a *account) { a.until(g.to, starting); a.away = false }})
		}
	}
	for _, g := range p.hubGone {
		out = append(out, moment{g.from, "", func(a *account) { a.before = a.now; a.until(g.from, noHub) }}, moment{g.to, "", func(a *account) { a.until(g.to, a.back()) }})
	}
	return out
}

// speed is that of the slot while it trained, in samples a second: what it does when nobody keeps it from training.
func (a *account) speed() float64 {
	if a.spent == 0 {
		return 0
	}
	return float64(a.chunks*churnChunk) / a.spent
}

// total is how many seconds the slots were connected, the hub's absences included.
func (s seconds) total() float64 {
	total := 0.0
	for _, k := range slices.Sorted(maps.Keys(s)) {
		total += s[k]
	}
	return total
}

// print writes the table, the greatest first.
func (s seconds) print(out io.Writer) {
	total := s.total()
	fmt.Fprintf(out, "| what became of the seconds of connected slots | s | share |\n|---|---|---|\n")
	for _, k := range slices.SortedFunc(maps.Keys(s), func(a, b string) int { return cmp.Or(cmp.Compare(s[b], s[a]), cmp.Compare(a, b)) }) {
		if s[k] >= 0.05 {
			fmt.Fprintf(out, "| %s | %.1f | %.4f |\n", k, s[k], s[k]/total)
		}
	}
	fmt.Fprintf(out, "| all | %.1f | |\n", total)
}
