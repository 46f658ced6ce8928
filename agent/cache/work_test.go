package cache

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

func chunk(c domain.ChunkID) *domain.ChunkID { return &c }

// note is a line of run r, round 1.
func note(epoch domain.Epoch, number, boundary int, c *domain.ChunkID) Line {
	return Line{Run: "r", Epoch: epoch, Round: 1, Number: number, Boundary: boundary, Chunk: c, Steps: 3, Seconds: 0.5, Loss: 1}
}

func TestWorkOf(t *testing.T) {
	for name, c := range map[string]struct {
		lines  []Line
		epoch  domain.Epoch
		number int
		chunks []domain.ChunkID
	}{
		"nothing":                     {},
		"two chunks":                  {[]Line{note(7, 1, 1, chunk(4)), note(7, 1, 2, chunk(5))}, 7, 1, []domain.ChunkID{4, 5}},
		"trained again after a cut":   {[]Line{note(7, 1, 1, chunk(4)), note(7, 1, 2, chunk(5)), note(7, 1, 3, chunk(6)), note(7, 1, 2, chunk(9))}, 7, 1, []domain.ChunkID{4, 9}},
		"the next contribution":       {[]Line{note(7, 1, 1, chunk(4)), note(7, 2, 1, chunk(5))}, 7, 2, []domain.ChunkID{5}},
		"adopted under another lease": {[]Line{note(7, 1, 1, chunk(4)), note(7, 1, 2, chunk(5)), note(9, 2, 1, nil)}, 9, 2, []domain.ChunkID{4}},
		"a gap":                       {[]Line{note(7, 1, 1, chunk(4)), note(7, 1, 3, chunk(5)), note(7, 1, 2, chunk(6))}, 7, 1, []domain.ChunkID{4}},
		"another lease in the middle": {[]Line{note(7, 1, 1, chunk(4)), note(8, 1, 2, chunk(5))}, 7, 1, []domain.ChunkID{4}},
		"nothing to adopt":            {[]Line{note(9, 2, 1, nil), note(7, 1, 1, chunk(4))}, 0, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := WorkOf(c.lines)
			var chunks []domain.ChunkID
			for _, l := range w.Lines {
				chunks = append(chunks, *l.Chunk)
			}
			if w.Epoch != c.epoch || w.Number != c.number || !cmp.Equal(chunks, c.chunks) {
				t.Errorf("got lease %d number %d chunks %v", w.Epoch, w.Number, chunks)
			}
		})
	}
}

// The next process finds what the one before has saved; a torn line, a lost snapshot and changed bytes are noticed.
func TestFound(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, Options{})
	slots := func() *Snapshots {
		t.Helper()
		all, err := c.Snapshots(2)
		if err != nil {
			t.Fatal(err)
		}
		return all[1]
	}
	s := slots()
	if _, _, ok := s.Found(); ok {
		t.Error("something was found where nothing is")
	}
	for b := 1; b <= 3; b++ {
		if err := s.Save(b, 9, func(w io.Writer) error { _, err := io.WriteString(w, "weights "+string(rune('0'+b))); return err }); err != nil {
			t.Fatal(err)
		}
		if err := s.Note(note(7, 1, b, chunk(domain.ChunkID(3+b)))); err != nil {
			t.Fatal(err)
		}
	}
	s.Prune(2)
	again := func() *Snapshots {
		t.Helper()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c = open(t, dir, Options{})
		return slots()
	}
	s = again()
	w, boundaries, ok := s.Found()
	if !ok || w.Run != "r" || w.Epoch != 7 || len(w.Lines) != 3 || !cmp.Equal(boundaries, []int{2, 3}) {
		t.Fatalf("found %v %v", w, boundaries)
	}
	if got, err := read(s, 3); got != "weights 3" || err != nil {
		t.Errorf("boundary 3: %q, %v", got, err)
	}
	if err := os.WriteFile(s.path(3), []byte("weights X"), 0o600); err != nil {
		t.Fatal(err)
	}
	notes, err := os.ReadFile(s.notes())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.notes(), notes[:len(notes)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	s = again()
	if w, boundaries, _ = s.Found(); len(w.Lines) != 2 || !cmp.Equal(boundaries, []int{2}) {
		t.Errorf("behind a torn line: %v %v", w, boundaries)
	}
	if err := os.WriteFile(s.notes(), notes, 0o600); err != nil {
		t.Fatal(err)
	}
	s = again()
	s.Found()
	if _, err := read(s, 3); domain.KindOf(err) != domain.KindIntegrity {
		t.Errorf("changed bytes: %v", err)
	}
	if err := s.Clear(); err != nil {
		t.Fatal(err)
	}
	s = again()
	if _, _, ok := s.Found(); ok {
		t.Error("cleared work was found")
	}
	if all, err := c.Snapshots(1); err != nil || len(all) != 1 {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, slotsDir, "1")); !os.IsNotExist(err) {
		t.Errorf("the directory of a slot that is gone: %v", err)
	}
}

// A line that is not as it was written, or cannot be of a run, ends what is believed, also where it is valid JSON.
func TestChangedNotesAreNotBelieved(t *testing.T) {
	c := open(t, t.TempDir(), Options{})
	all, err := c.Snapshots(1)
	if err != nil {
		t.Fatal(err)
	}
	s := all[0]
	write := func(second Line) []byte {
		t.Helper()
		for b, l := range []Line{note(7, 1, 1, chunk(41)), second} {
			if err := s.Save(b+1, 9, func(w io.Writer) error { _, err := io.WriteString(w, "weights"); return err }); err != nil {
				t.Fatal(err)
			}
			if err := s.Note(l); err != nil {
				t.Fatal(err)
			}
		}
		notes, err := os.ReadFile(s.notes())
		if err != nil {
			t.Fatal(err)
		}
		return notes
	}
	lines := func() int { w, _, _ := s.Found(); return len(w.Lines) }
	whole := write(note(7, 1, 2, chunk(run.MaxChunks-1)))
	if n := lines(); n != 2 {
		t.Fatalf("%d of 2 whole lines are found", n)
	}
	second := bytes.IndexByte(whole, '\n') + 1
	for at, b := range whole[second:] {
		if b < '0' || b > '9' {
			continue
		}
		changed := bytes.Clone(whole)
		changed[second+at] = '0' + (b-'0'+1)%10
		if err := os.WriteFile(s.notes(), changed, 0o600); err != nil {
			t.Fatal(err)
		}
		if n := lines(); n != 1 {
			t.Errorf("%d lines are believed with a digit changed in %s", n, changed[second:])
		}
	}
	odd := note(7, 1, 2, chunk(5))
	odd.Run = "../r"
	for name, l := range map[string]Line{"no chunk of a run": note(7, 1, 2, chunk(run.MaxChunks)), "a chunk below 0": note(7, 1, 2, chunk(-1)), "no id": odd} {
		if write(l); lines() != 1 {
			t.Errorf("%s: %d lines are believed", name, lines())
		}
	}
}
