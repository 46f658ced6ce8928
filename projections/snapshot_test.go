package projections_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain/event"
	"tensorturn/domain/freeze"
)

// frozen freezes every part of the views.
func (v views) frozen(t fataler) [][]byte {
	var out [][]byte
	for _, p := range v.engine.Parts() {
		b, err := freeze.Freeze(p)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// thawed makes views from what frozen gave at seq.
func thawed(t fataler, parts [][]byte, seq uint64) views {
	v := newViews()
	for i, p := range v.engine.Parts() {
		set, err := freeze.Thaw(p, parts[i], 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		set()
	}
	v.engine.Resume(seq)
	return v
}

// replayed gives new views the events.
func replayed(t fataler, es []event.Envelope) views {
	v := newViews()
	if err := v.engine.Apply(es...); err != nil {
		t.Fatal(err)
	}
	return v
}

// difference compares what readers see and what the next snapshot would hold.
func difference(t fataler, want, got views) string {
	if d := cmp.Diff(want.seen(), got.seen()); d != "" {
		return d
	}
	a, b := want.frozen(t), got.frozen(t)
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return "part " + want.engine.Parts()[i].Name + " freezes otherwise"
		}
	}
	return ""
}

// fromSnapshot cuts the storm's log at a place: snapshot there plus tail must be the whole.
func (s *storm) fromSnapshot(at int) {
	v := thawed(s.r, replayed(s.r, s.log[:at]).frozen(s.r), uint64(at))
	if err := v.engine.Apply(s.log[at:]...); err != nil {
		s.r.Fatal(err)
	}
	if d := difference(s.r, replayed(s.r, s.log), v); d != "" {
		s.r.Fatalf("a snapshot at %d and its tail differ from the whole log (-log +snapshot):\n%s", at, d)
	}
}

// TestSnapshotAndTailAreTheWholeLog at every place of the story.
func TestSnapshotAndTailAreTheWholeLog(t *testing.T) {
	log := story()
	whole := replayed(t, log)
	for at := range len(log) + 1 {
		v := thawed(t, replayed(t, log[:at]).frozen(t), uint64(at))
		if err := v.engine.Apply(log[at:]...); err != nil {
			t.Fatal(err)
		}
		if d := difference(t, whole, v); d != "" {
			t.Errorf("at %d:\n%s", at, d)
		}
	}
}

// TestOffByOneIsCaught plants the fault that snapshots invite: state of one record said to be that of another. Were the
// comparison above blind, this would pass.
func TestOffByOneIsCaught(t *testing.T) {
	log := story()
	whole := replayed(t, log)
	for at := 1; at < len(log); at++ {
		for _, wrong := range []int{at - 1, at + 1} {
			v := thawed(t, replayed(t, log[:wrong]).frozen(t), uint64(at))
			if err := v.engine.Apply(log[at:]...); err != nil {
				t.Fatal(err)
			}
			if difference(t, whole, v) == "" {
				t.Errorf("state of %d passed for that of %d", wrong, at)
			}
		}
	}
}

// fataler is what *testing.T and *rapid.T have in common.
type fataler interface{ Fatal(args ...any) }
