package torch

import (
	"os"
	"slices"
	"strings"
	"testing"

	"tensorturn/domain/run"
)

// The promise: a plain loop changes at most four lines. Counted are lines that are new or differ, by the longest common
// subsequence; each script after the change also runs, alone and under an agent.
func TestLinesChanged(t *testing.T) {
	for _, name := range []string{"plain", "accumulate", "mixed"} {
		t.Run(name, func(t *testing.T) {
			before, after := readLines(t, name+".before.py"), readLines(t, name+".after.py")
			n := len(after) - common(before, after)
			t.Logf("%s: %d of %d lines are new or differ", name, n, len(before))
			if n > 4 || n == 0 {
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

// A member of an ensemble changes one line where its script saves something else than safetensors, and none where it does
// not, with output in the spec or without.
func TestLinesOfAMember(t *testing.T) {
	before, after := readLines(t, "ensemble.before.py"), readLines(t, "ensemble.after.py")
	if n := len(after) - common(before, after); n != 1 || len(before) != len(after) {
		t.Errorf("%d lines are new or differ, of %d and %d", n, len(before), len(after))
	}
	t.Logf("ensemble: 1 of %d lines where the script saves something else than safetensors, 0 where it does not", len(before))
	python(t)
	for name, c := range map[string]struct{ save, output string }{
		"one line": {after[len(after)-1], "model.safetensors"}, "none": {saveByHand, "model.safetensors"},
		"one line, no output": {after[len(after)-1], ""}, "none, no output": {saveByHand, ""},
	} {
		job := scriptJob(t, strings.Join(append(slices.Clone(before[:len(before)-1]), c.save), "\n"), nil)
		job.Member, job.Spec.Output, job.Spec.Mode = 1, c.output, run.ModeEnsemble
		tr, err := opener(t).Open(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := tr.Train(t.Context(), 0, nil); err != nil || !r.All || len(tr.Layout()) != 4 {
			t.Errorf("%s: %+v, %v, %v", name, r, err, tr.Layout())
		}
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}
}

// saveByHand is what a script has that writes safetensors already, without the package, which the interpreter may lack.
const saveByHand = `
import json, struct
at, head, data = 0, {}, b""
for k, v in model.state_dict().items():
    raw = b"".join(struct.pack("<f", f) for f in v.flatten().tolist())
    head[k] = {"dtype": "F32", "shape": list(v.shape), "data_offsets": [at, at + len(raw)]}
    at, data = at + len(raw), data + raw
text = json.dumps(head).encode()
open("model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
`

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
