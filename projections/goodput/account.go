package goodput

import (
	"math"
	"slices"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

const (
	// maxOwed is how much of a chunk's time may be carried to the next one: reports come sooner or later by that much at most, and
	// an agent whose clock runs fast must not turn all of its waiting into training.
	maxOwed = 5 * time.Second
	// maxChunkTime bounds the seconds that an agent may tell of one chunk.
	maxChunkTime = 365 * 24 * time.Hour
)

// stretch is a time in which a slot did one thing, as far as is known.
type stretch struct {
	kind Kind
	long time.Duration
}

// work is a chunk that a slot has trained.
type work struct {
	long  time.Duration // what was booked for it
	round int
}

// account follows one slot through the log. Between two chunks it keeps the stretches: the chunk that is told next ate the
// last of them, since its own seconds are known.
type account struct {
	slot domain.SlotID
	sums map[Kind]time.Duration
	at   time.Time // booked up to here
	now  Kind
	long time.Duration // all that was booked; the sums, what is pending and what lies with chunks must come to it

	unit      run.Unit     // of its lease of this run, empty without
	elsewhere domain.RunID // whose lease it holds otherwise
	other     time.Duration
	took      bool // had a lease of the run
	there     bool // may be given work, by the log
	gone      bool // is away, by an observer
	silent    bool // its machine is
	hubAway   bool
	spoke     bool // since the hub went away
	unheard   bool
	fresh     bool // the agent or the trainer has begun anew, and has trained nothing yet
	done      bool // has worked in this round, and was released

	pending []stretch
	told    bool // pending lies before a chunk that was just told: others may be told at the same time
	owed    time.Duration

	held map[domain.ChunkID]work // trained under the present lease
	late map[domain.ChunkID]work // trained under ended ones: still to be adopted, perhaps
	won  map[domain.ChunkID]time.Duration
	// What it trained, whatever became of it, and what of it the ledger counts.
	spent            time.Duration
	trained, counted int64 // samples
}

func newAccount(slot domain.SlotID, at time.Time) *account {
	return &account{slot: slot, at: at, sums: map[Kind]time.Duration{}, held: map[domain.ChunkID]work{}, late: map[domain.ChunkID]work{}, won: map[domain.ChunkID]time.Duration{}}
}

// kind is what the present second is booked under.
func (a *account) kind() Kind {
	switch {
	case a.gone || !a.there:
		return away
	case a.hubAway:
		return HubAway
	case a.silent && !a.now.waits():
		return Silent
	case a.unheard:
		return Unheard
	}
	return a.now
}

// until books the time up to t; one that lies back adds nothing.
func (a *account) until(t time.Time) {
	d := t.Sub(a.at)
	if d <= 0 {
		return
	}
	a.at = t
	if a.told {
		a.flush()
	}
	switch k := a.kind(); {
	case k == away:
	case a.elsewhere != "" && a.unit == "":
		a.other += d
	default:
		a.wait(k, d)
	}
}

// wait lets a stretch wait for its true name.
func (a *account) wait(k Kind, d time.Duration) {
	a.long += d
	if n := len(a.pending); n > 0 && a.pending[n-1].kind == k {
		a.pending[n-1].long += d
		return
	}
	a.pending = append(a.pending, stretch{k, d})
}

// become books the time up to t; from there on the slot does something else.
func (a *account) become(t time.Time, next Kind) {
	a.until(t)
	a.now, a.spoke, a.unheard = next, true, false
}

// flush books what was no training.
func (a *account) flush() {
	for _, s := range a.pending {
		a.sums[s.kind] += s.long
	}
	a.pending, a.told = a.pending[:0], false
}

// train takes a chunk that is told at t: its seconds are the last ones before it.
func (a *account) train(t time.Time, c domain.ChunkID, seconds float64, samples int64, round int) {
	a.become(t, Between)
	own := lasting(seconds)
	a.spent += own
	a.trained += samples
	left := own + a.owed
	eaten := time.Duration(0)
	for i := len(a.pending) - 1; i >= 0 && left > 0; i-- {
		bite := min(left, a.pending[i].long)
		a.pending[i].long -= bite
		left -= bite
		eaten += bite
	}
	a.owed = min(left, maxOwed)
	a.discard(c) // trained before, and once more now
	a.held[c] = work{eaten, round}
	a.told, a.fresh = true, false
}

// lasting bounds what an agent says.
func lasting(seconds float64) time.Duration {
	if math.IsNaN(seconds) || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, maxChunkTime.Seconds()) * float64(time.Second))
}

// discard gives up what the slot has trained of the chunks.
func (a *account) discard(cs ...domain.ChunkID) {
	for _, c := range cs {
		a.sums[Discarded] += a.held[c].long + a.late[c].long
		delete(a.held, c)
		delete(a.late, c)
	}
}

// leave ends the lease: what it held may still be adopted.
func (a *account) leave() {
	for c, w := range a.held {
		a.late[c] = work{a.late[c].long + w.long, w.round}
	}
	clear(a.held)
	a.unit = ""
}

// next begins another contribution: what the last one left out is lost.
func (a *account) next() {
	for _, w := range a.held {
		a.sums[Discarded] += w.long
	}
	clear(a.held)
}

// forget gives up late work of rounds before the given one: its base is too old.
func (a *account) forget(before int) {
	for c, w := range a.late {
		if w.round < before {
			a.sums[Discarded] += w.long
			delete(a.late, c)
		}
	}
	clear(a.won)
}

// count books chunks as counted.
func (a *account) count(cs []domain.ChunkID, samples int64) {
	for _, c := range cs {
		w := a.held[c].long
		a.won[c] += w
		a.sums[Counted] += w
		delete(a.held, c)
	}
	a.counted += samples
}

// revoke takes counted chunks back.
func (a *account) revoke(cs []domain.ChunkID, samples int64) {
	for _, c := range cs {
		a.sums[Counted] -= a.won[c]
		a.sums[Discarded] += a.won[c]
		delete(a.won, c)
	}
	a.counted -= samples
}

// rename gives the stretches since the last chunk their true name, which shows only later.
func (a *account) rename(to Kind, from ...Kind) {
	if a.told {
		a.flush()
	}
	for i := range a.pending {
		if slices.Contains(from, a.pending[i].kind) {
			a.pending[i].kind = to
		}
	}
}

// broke ends at t what was under way: a slot that had chunks to train was training one.
func (a *account) broke(t time.Time) {
	a.become(t, Restarting)
	a.rename(Torn, Between, Preparing)
	a.flush()
	a.fresh = true
}

// hush names the last part of the pending time, which was silent.
func (a *account) hush(long time.Duration) {
	if a.told {
		a.flush()
	}
	for i := len(a.pending) - 1; i >= 0 && long > 0; i-- {
		s := &a.pending[i]
		cut := min(long, s.long)
		long -= cut
		switch {
		case s.kind == HubAway || s.kind.waits():
		case cut == s.long:
			s.kind = Silent
		default:
			s.long -= cut
			a.pending = slices.Insert(a.pending, i+1, stretch{Silent, cut})
		}
	}
	a.silent = true
}

// hub begins or ends an absence of the hub. A slot that has trained on may have nothing to train for want of a word.
func (a *account) hub(t time.Time, gone bool) {
	a.until(t)
	if gone {
		a.hubAway, a.spoke = true, false
		return
	}
	a.hubAway, a.unheard = false, !a.spoke && a.now.work()
}
