package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tiny is an arm that trains for an instant.
var tiny = arm{name: "tiny", tokens: 640, lr: 8e-3, alone: true}

// What is kept is what was measured; the note of an experiment says so only where it used some of it.
func TestKeptResultsAreNamedWhereUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kept.json")
	first := newBench()
	if err := first.resume(path); err != nil {
		t.Fatal(err)
	}
	jobs := []job{{tiny, 1}}
	if err := first.do(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	second := newBench()
	if err := second.resume(path); err != nil {
		t.Fatal(err)
	}
	want, got := first.known[jobs[0].key()], second.known[jobs[0].key()]
	if got.Loss != want.Loss || got.Validation != want.Validation || got.Time != want.Time || want.Loss == 0 {
		t.Fatalf("%+v came back as %+v", want, got)
	}
	for _, c := range []struct {
		b    *bench
		seed uint64
		note bool
	}{{first, 1, false}, {second, 2, false}, {second, 1, true}} {
		l := &lab{ctx: t.Context(), out: io.Discard, bench: c.b}
		text, _ := l.do(experiment{"E0", "tiny", func(l *lab) error { return l.bench.do(l.ctx, []job{{tiny, c.seed}}) }})
		if strings.Contains(text, "earlier tries") != c.note {
			t.Errorf("seed %d: the note is to be there: %v\n%s", c.seed, c.note, text)
		}
	}
	if err := second.forget(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
	if err := second.forget(); err != nil {
		t.Error(err)
	}
}

// Of several jobs that end because one failed, the one that failed is told, whatever else was under way.
func TestFirstFailureIsTold(t *testing.T) {
	bad := tiny
	bad.name, bad.lr = "bad", -1
	long := tiny
	long.name, long.tokens = "long", tokens
	err := newBench().do(t.Context(), []job{{long, 1}, {bad, 1}, {long, 2}, {long, 3}})
	if err == nil || !strings.Contains(err.Error(), "bad, seed 1") {
		t.Errorf("told: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newBench().do(ended, []job{{tiny, 1}}); err == nil {
		t.Error("a bench whose time is over trains nothing and says nothing")
	}
}
