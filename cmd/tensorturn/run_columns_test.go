package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tensorturn/domain/run"
)

// wildCSV has an id, a column of so many words, a whole number that repeats and a fraction that does not.
func wildCSV(rows, words int) string {
	var b strings.Builder
	b.WriteString("id,town,rooms,area,kind\n")
	for i := range rows {
		fmt.Fprintf(&b, "%d,t%d,%d,%d.5,%c\n", 7*i+3, i%words, i%5, i, 'a'+rune(i%2))
	}
	return b.String()
}

func TestColumnsThatWereNotMeant(t *testing.T) {
	for what, c := range map[string]struct {
		rows, words int
		d           run.Data
		want        []string
	}{
		"an id":        {40, 4, run.Data{Categories: []string{"town"}}, []string{`different in every row, as the number of a row is: column "id";`}},
		"few rows":     {leastRows - 1, 4, run.Data{Categories: []string{"town"}}, nil},
		"ignored":      {40, 4, run.Data{Categories: []string{"town"}, Ignore: []string{"id"}}, nil},
		"words":        {300, manyWords + 1, run.Data{Categories: []string{"town"}, Ignore: []string{"id"}}, []string{`become 101 features, 101 of them column "town"`}},
		"not so many":  {300, manyWords, run.Data{Categories: []string{"town"}, Ignore: []string{"id"}}, nil},
		"a word a row": {40, 40, run.Data{Categories: []string{"town"}}, []string{`column "id", "town";`}},
	} {
		spec := run.Spec{Seed: 1, Data: c.d}
		spec.Data.Holdout = 0.2
		p, err := packTable(&spec, strings.NewReader(wildCSV(c.rows, c.words)), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.warnings) != len(c.want) {
			t.Errorf("%s: %q", what, p.warnings)
			continue
		}
		for i, w := range c.want {
			if !strings.Contains(p.warnings[i], w) {
				t.Errorf("%s: %q", what, p.warnings)
			}
		}
	}
}

func TestFewSteps(t *testing.T) {
	for _, c := range []struct {
		batch, samples int
		want           string
	}{
		{5000, 960, "batch is 5000, so that an epoch of 960 samples has 1 step and the whole run 20: "},
		{100, 901, ""}, {100, 900, "has 9 steps"}, {32, 20, ""},
	} {
		got := strings.Join(fewSteps(&run.Spec{Batch: c.batch, Epochs: 20}, run.Dataset{Samples: c.samples}), "")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%d of %d: %q", c.batch, c.samples, got)
		}
	}
}

// What a folder of text holds is told before it is packed.
func TestTextIsToldBeforeItIsPacked(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"a", "b", "c", "d"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat("some words to learn. ", 100*(4-i))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var said []string
	spec := run.Spec{Data: run.Data{Path: dir, Format: run.FormatText, Holdout: 0.2}, Model: run.Model{Kind: run.ModelMLP, Context: 8}}
	w := writes(func() {
		if len(said) != 1 || !strings.HasPrefix(said[0], dir+": 20.5 KiB of text in 4 files, the largest ") || !strings.HasSuffix(said[0], "a (8.2 KiB), "+filepath.Base(dir)+"/b (6.2 KiB), "+filepath.Base(dir)+"/c (4.1 KiB)") {
			t.Errorf("before the first byte: %q", said)
		}
	})
	if _, err := packText(&spec, w, func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }); err != nil {
		t.Fatal(err)
	}
}

// writes calls itself at each write.
type writes func()

func (w writes) Write(b []byte) (int, error) { w(); return len(b), nil }
