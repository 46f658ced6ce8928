package torch

import (
	"os"
	"strings"
	"testing"
)

// The promise: a plain loop changes at most four lines. Counted are lines that are new or differ, by the longest common
// subsequence; each script after the change also runs, alone and under an agent.
func TestLinesChanged(t *testing.T) {
	for _, name := range []string{"plain", "accumulate", "mixed"} {
		t.Run(name, func(t *testing.T) {
			before, after := readLines(t, name+".before.py"), readLines(t, name+".after.py")
			if n := len(after) - common(before, after); n > 4 || n == 0 {
				t.Errorf("%d lines are new or differ", n)
			}
			if n := len(before) - common(before, after); n > 1 {
				t.Errorf("%d lines are gone or differ", n)
			}
			text := strings.Join(after, "\n")
			runScript(t, text)
			tr := openText(t, text)
			if r, err := tr.Train(t.Context(), 0, nil); err != nil || r.Steps != 4 || !(r.Loss > 0) {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

func readLines(t *testing.T, name string) []string {
	t.Helper()
	b, err := os.ReadFile("testdata/lines/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// common is the length of the longest common subsequence.
func common(a, b []string) int {
	row := make([]int, len(b)+1)
	for _, x := range a {
		diagonal := 0
		for j, y := range b {
			above := row[j+1]
			if x == y {
				row[j+1] = diagonal + 1
			} else {
				row[j+1] = max(row[j+1], row[j])
			}
			diagonal = above
		}
	}
	return row[len(b)]
}
