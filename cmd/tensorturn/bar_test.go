package main

import (
	"strings"
	"testing"
	"time"

	"tensorturn/domain/run"
	"tensorturn/projections/runs"
)

func watched() runs.Run {
	return runs.Run{Phase: run.PhaseTraining, Loss: 0.12345, Spec: run.Spec{Chunk: 100}, Rounds: runs.Rounds{Planned: 20, Merged: 2, Open: 3},
		Ledger: runs.Ledger{Expected: 10000, Counted: 2500}, Slots: []*runs.Slot{{Chunks: 30, Holding: 5}}}
}

func TestDrawn(t *testing.T) {
	for _, c := range []struct {
		width int
		want  string
	}{
		{78, "[=====" + strings.Repeat(" ", 15) + "] round 3/20  25.0%  loss 0.123  350/s  eta 20s  training"},
		{60, "round 3/20  25.0%  loss 0.123  350/s  eta 20s  training"},
		{40, "3/20 25.0% l 0.123 350/s eta 20s"},
		{20, "3/20 25.0% l 0.123"},
		{3, "3/2"},
		{0, ""},
	} {
		if got := drawn(watched(), 350, c.width); got != c.want || len(got) > c.width {
			t.Errorf("%d columns: %q, want %q", c.width, got, c.want)
		}
	}
}

func TestFigures(t *testing.T) {
	with := func(f func(*runs.Run)) runs.Run { r := watched(); f(&r); return r }
	for name, c := range map[string]struct {
		r    runs.Run
		rate float64
		want string
	}{
		"speed unknown": {watched(), 0, "round 3/20 25.0% loss 0.123 training"},
		"nothing trained": {with(func(r *runs.Run) { r.Slots, r.Loss, r.Ledger.Counted = nil, 0, 0 }), 0,
			"round 3/20 0.0% loss - training"},
		"nothing left to train": {with(func(r *runs.Run) { r.Slots[0].Holding = 75 }), 350, "round 3/20 25.0% loss 0.123 350/s training"},
		"paused":                {with(func(r *runs.Run) { r.Paused = "x" }), 350, "round 3/20 25.0% loss 0.123 paused"},
	} {
		if got := strings.Join(figures(c.r, c.rate, ""), " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestWhole(t *testing.T) {
	for s, want := range map[float64]string{0.2: "0s", 13.4: "13s", 123: "2m3s", 7260: "2h1m", 1e300: "277h47m"} {
		if got := whole(s); got != want {
			t.Errorf("%v: %s, want %s", s, got, want)
		}
	}
}

func TestSignificant(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 2.3: "2.30", 0.0456789: "0.0457", 12.345: "12.3", 123.4: "123", 1234: "1234", 0.00012: "1.20e-04", 1: "1.00", 2.5e7: "2.50e+07"} {
		if got := significant(x); got != want {
			t.Errorf("%v: %s, want %s", x, got, want)
		}
	}
}

// The pace is that of the last minute, and no luck of the first moment.
func TestPace(t *testing.T) {
	var p pace
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	p.note(at, 0)
	p.note(at.Add(paceLeast-1), 1000)
	if p.rate() != 0 {
		t.Errorf("a speed after less than %s: %v", paceLeast, p.rate())
	}
	for s := 1; s <= 200; s++ { // 100 a second, and 10 a second from the hundredth second on
		n := int64(min(s, 100)*100 + max(s-100, 0)*10)
		for ms := 0; ms < 1000; ms += 100 {
			p.note(at.Add(time.Duration(s)*time.Second+time.Duration(ms)*time.Millisecond), n)
		}
		if s == 50 && (p.rate() < 95 || p.rate() > 105) {
			t.Errorf("after 50 s: %v", p.rate())
		}
	}
	if p.rate() < 9 || p.rate() > 11 {
		t.Errorf("a minute later the old speed still counts: %v", p.rate())
	}
	if most := 2*int(paceWindow/paceStep) + 3; len(p.marks) > most {
		t.Errorf("%d marks, at most %d", len(p.marks), most)
	}
}
