package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlantedFaultsAreSeen holds that an experiment fails when what it claims is not so.
func TestPlantedFaultsAreSeen(t *testing.T) {
	if testing.Short() {
		t.Skip("trains some dozens of models")
	}
	shared := newBench()
	for _, c := range []struct{ id, plant, missed string }{
		{"E1", plantOvershoot, "fused against data parallel"},
		{"E2", plantOvershoot, "four machines end below one"},
		{"E3", plantOvershoot, "H = 50 against H = 5"},
		{"E4", plantFat, "within 1 % of the formula"},
		{"E5", plantSparse, "e3m0 up against fp32"},
		{"E5n", plantSharp, "the blunt code is worse"},
		{"E6", plantStatic, "a third of the time"},
		{"E6w", plantWeights, "samples against FedNova"},
		{"E7", plantDeaf, "equal attempted tokens"},
		{"E9", plantMemory, "thrown away it is worse"},
		{"E11", plantOpen, "×100 from round 5"},
		{"E13", plantEqualMembers, "gains +0.00 points"},
		{"E13n", plantSharedStart, "the average of independent members' weights is below 80 %"},
	} {
		t.Run(c.id, func(t *testing.T) {
			chosen, err := choose(c.id)
			if err != nil {
				t.Fatal(err)
			}
			l := &lab{ctx: t.Context(), quick: true, plant: c.plant, out: io.Discard, bench: shared}
			text, ok := l.do(chosen[0])
			if l.err != nil {
				t.Fatal(l.err)
			}
			missed := ""
			for line := range strings.Lines(text) {
				if strings.Contains(line, "MISSED") {
					missed += line
				}
			}
			if ok || !strings.Contains(missed, c.missed) {
				t.Errorf("the fault %q is not seen:\n%s", c.plant, text)
			}
		})
	}
}

func TestBlocksAreRewrittenAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "RESULTS.md")
	for _, w := range []struct{ id, text string }{{"E1", "one\n"}, {"E13", "thirteen\n"}, {"E1", "new one\n"}} {
		if err := rewrite(path, w.id, w.text); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	want := resultsHead + "<!-- E1 -->\nnew one\n<!-- end of E1 -->\n<!-- E13 -->\nthirteen\n<!-- end of E13 -->\n"
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, got)
	}
	if err := os.WriteFile(path, []byte("<!-- E1 -->\ncut"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(path, "E1", "x"); err == nil {
		t.Error("a block without an end is overwritten")
	}
}

func TestCommandRefusesUnknownExperiments(t *testing.T) {
	var errs bytes.Buffer
	if code := command([]string{"-only", "E99"}, io.Discard, &errs); code != 2 || !strings.Contains(errs.String(), "E13n") {
		t.Errorf("exit %d: %s", code, errs.String())
	}
}

func TestRepeatedIDsAreRefused(t *testing.T) {
	seen := map[string]bool{}
	for _, id := range ids() {
		if seen[id] {
			t.Errorf("%s is listed twice", id)
		}
		seen[id] = true
	}
}

func TestStudentsT(t *testing.T) {
	s := sample{1, 2, 3, 4} // mean 2.5, deviation √(5/3), t = 2.5/(1.29099/2)
	if got := s.t(); got < 3.8729 || got > 3.8731 {
		t.Errorf("t is %v", got)
	}
	if got := (sample{0, 0}).t(); got != 0 {
		t.Errorf("t of no gain is %v", got)
	}
}
