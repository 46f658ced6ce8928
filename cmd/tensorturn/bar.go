package main

import (
	"fmt"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/run"
	"tensorturn/projections/runs"
)

// bar is one redrawn line on a terminal, or a plain line every few seconds elsewhere.
type bar struct {
	t     *terminal
	pace  pace
	last  time.Time
	drawn bool
	noted string // said where nothing can be redrawn
}

// plainEvery spaces the lines where nothing can be redrawn.
const plainEvery = 5 * time.Second

func newBar(t *terminal) *bar { return &bar{t: t} }

func (b *bar) clear() {
	if b.drawn {
		fmt.Fprint(b.t.err, "\r\x1b[K")
		b.drawn = false
	}
}

// line prints something that happened, above the bar.
func (b *bar) line(s string) {
	b.clear()
	b.t.say("%s", clean(s))
}

// note says what is being waited for, in place of the bar.
func (b *bar) note(s string) {
	switch {
	case b.t.quiet:
	case !b.t.live: // said once, until there is something to show again
		if s != b.noted {
			b.t.say("%s", s)
		}
		b.noted = s
	default:
		b.clear()
		fmt.Fprint(b.t.err, domain.Clip(s, b.t.size()-1))
		b.drawn = true
	}
}

// show draws the run's progress.
func (b *bar) show(r runs.Run) {
	now := time.Now()
	b.pace.note(now, trained(r))
	b.noted = ""
	switch {
	case b.t.quiet:
	case !b.t.live:
		if now.Sub(b.last) >= plainEvery || r.Phase.Ended() {
			b.last = now
			b.t.say("%s", strings.Join(figures(r, b.pace.rate(), " of samples counted"), "  "))
		}
	default:
		b.clear()
		fmt.Fprint(b.t.err, drawn(r, b.pace.rate(), b.t.size()-1))
		b.drawn = true
	}
}

func (b *bar) done() { b.clear() }

// minBar is the narrowest bar worth its place.
const minBar = 10

// drawn fits the run's progress into width columns: a bar and figures; where that does not fit the figures; where they do
// not fit either their short form, without those at the end that have no place.
func drawn(r runs.Run, rate float64, width int) string {
	s := strings.Join(figures(r, rate, ""), "  ")
	if room := width - len(s) - 3; room >= minBar {
		full := 0
		if r.Ledger.Expected > 0 {
			full = int(min(max(int64(room)*r.Ledger.Counted/r.Ledger.Expected, 0), int64(room)))
		}
		return "[" + strings.Repeat("=", full) + strings.Repeat(" ", room-full) + "] " + s
	}
	if len(s) <= width {
		return s
	}
	f := figures(r, rate, "")
	f[0], f[2] = strings.TrimPrefix(strings.TrimPrefix(f[0], "round "), "members "), strings.Replace(f[2], "loss ", "l ", 1)
	for len(f) > 1 && len(strings.Join(f, " ")) > width {
		f = f[:len(f)-1]
	}
	return domain.Clip(strings.Join(f, " "), max(width, 0))
}

// figures are the run's progress in words: round, fraction, loss, speed and time left where they are known, phase.
func figures(r runs.Run, rate float64, of string) []string {
	loss := "-"
	if trained(r) > 0 {
		loss = significant(r.Loss)
	}
	f := []string{done(r), percent(r.Ledger.Counted, r.Ledger.Expected) + of, "loss " + loss}
	if rate > 0 && r.Phase == run.PhaseTraining && r.Paused == "" {
		f = append(f, significant(rate)+"/s")
		if left := remaining(r); left > 0 {
			f = append(f, "eta "+whole(float64(left)/rate))
		}
	}
	return append(f, phase(r))
}

// done is how much of the run is done: its rounds, or its members.
func done(r runs.Run) string {
	if r.Members == nil {
		return fmt.Sprintf("round %d/%d", max(r.Rounds.Open, r.Rounds.Merged), r.Rounds.Planned)
	}
	in, all := membersIn(r)
	return fmt.Sprintf("members %d/%d", in, all)
}

// whole renders seconds for people, in whole ones: what is left is a guess.
func whole(seconds float64) string {
	d := time.Duration(min(seconds, 1e6) * float64(time.Second)).Round(time.Second) // beyond eleven days it says nothing
	if d < time.Minute {
		return d.String()
	}
	return short(d)
}

// trained is the number of samples that slots have trained, those that were given back among them; the last chunk of an
// epoch may be smaller.
func trained(r runs.Run) int64 {
	if r.Members != nil { // members are counted from their checkpoints
		return r.Ledger.Counted
	}
	n := 0
	for _, s := range r.Slots {
		n += s.Chunks
	}
	return int64(n) * int64(r.Spec.Chunk)
}

// remaining is what is still to train: neither counted nor in somebody's local weights.
func remaining(r runs.Run) int64 {
	holding := 0
	for _, s := range r.Slots {
		holding += s.Holding
	}
	return max(r.Ledger.Expected-r.Ledger.Counted-int64(holding)*int64(r.Spec.Chunk), 0)
}

// pace measures the pool's speed over the last minute.
type pace struct{ marks []mark }

type mark struct {
	at      time.Time
	samples int64
}

// Limits of a pace: a minute evens out merges and uploads, and marks need no more than a few to a second.
const (
	paceWindow = time.Minute
	paceStep   = 250 * time.Millisecond
	paceLeast  = time.Second // a speed over less is luck
)

func (p *pace) note(at time.Time, samples int64) {
	if n := len(p.marks); n > 1 && at.Sub(p.marks[n-2].at) < paceStep {
		p.marks = p.marks[:n-1] // the newest mark moves until a step is over
	}
	p.marks = append(p.marks, mark{at, samples})
	for len(p.marks) > 2 && at.Sub(p.marks[1].at) >= paceWindow {
		p.marks = p.marks[1:]
	}
}

// rate is in samples per second, 0 while it is not known.
func (p *pace) rate() float64 {
	if len(p.marks) < 2 {
		return 0
	}
	first, last := p.marks[0], p.marks[len(p.marks)-1]
	took := last.at.Sub(first.at)
	if took < paceLeast {
		return 0
	}
	return float64(last.samples-first.samples) / took.Seconds()
}
