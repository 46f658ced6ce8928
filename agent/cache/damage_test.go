package cache

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/blob"
)

// TestDamagedFolderHealsItself: what is fetched or made again is no reason to refuse a start, to read without bound, or to try
// the same bad sector for ever.
func TestDamagedFolderHealsItself(t *testing.T) {
	data := bytes.Repeat([]byte{1}, 100)
	d := blob.Sum(data)
	object := func(dir string) string { return filepath.Join(dir, partsDir, string(d[:2]), string(d)) }
	pinned := pin{"r-1", 3, d}
	folder := func(path string) error {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		return os.MkdirAll(filepath.Join(path, "within"), 0o700)
	}
	file := func(path string) error {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		return os.WriteFile(path, []byte("x"), 0o600)
	}
	for name, harm := range map[string]func(dir string) error{
		"object huge":        func(dir string) error { return os.Truncate(object(dir), 1<<40) },
		"object a folder":    func(dir string) error { return folder(object(dir)) },
		"objects a file":     func(dir string) error { return file(filepath.Dir(object(dir))) },
		"parts a file":       func(dir string) error { return file(filepath.Join(dir, partsDir)) },
		"pins a file":        func(dir string) error { return file(filepath.Join(dir, pinsDir)) },
		"pin a folder":       func(dir string) error { return folder(filepath.Join(dir, pinsDir, pinned.file())) },
		"pin huge":           func(dir string) error { return os.Truncate(filepath.Join(dir, pinsDir, pinned.file()), 1<<40) },
		"lock a folder":      func(dir string) error { return folder(filepath.Join(dir, "lock")) },
		"slots a file":       func(dir string) error { return file(filepath.Join(dir, slotsDir)) },
		"slot a file":        func(dir string) error { return file(filepath.Join(dir, slotsDir, "0")) },
		"notes a folder":     func(dir string) error { return folder(filepath.Join(dir, slotsDir, "0", "work.jsonl")) },
		"snapshot a folder":  func(dir string) error { return folder(filepath.Join(dir, slotsDir, "0", "1.safetensors")) },
		"whole cache a file": file,
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			use := func(o Options) {
				c := open(t, dir, o)
				if err := c.Put(d, data); err != nil {
					t.Fatal(err)
				}
				if got, err := c.Get(d); err != nil || !bytes.Equal(got, data) {
					t.Fatal(len(got), err)
				}
				if err := c.Pin(pinned.run, pinned.round, d, nil); err != nil {
					t.Fatal(err)
				}
				slots, err := c.Snapshots(1)
				if err != nil {
					t.Fatal(err)
				}
				if err := slots[0].Save(1, 9, func(w io.Writer) error { _, err := w.Write(data); return err }); err != nil {
					t.Fatal(err)
				}
				if err := slots[0].Note(note(7, 1, 1, chunk(3))); err != nil {
					t.Fatal(err)
				}
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
			}
			use(Options{})
			if err := harm(dir); err != nil {
				t.Fatal(err)
			}
			told := 0
			use(Options{Lost: func(err error) {
				if told++; domain.KindOf(err) != domain.KindIntegrity {
					t.Error(err)
				}
			}})
			if told == 0 && name != "objects a file" { // that one looks like a write that was cut off
				t.Error("nobody was told")
			}
		})
	}
}

// TestObjectGrowsUnderway: a file that becomes longer while the agent runs is not read to its end, and neither is one that cannot be
// read at all asked for for ever.
func TestObjectGrowsUnderway(t *testing.T) {
	for name, harm := range map[string]func(path string) error{
		"longer": func(path string) error { return os.Truncate(path, 1<<40) },
		"folder": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		},
	} {
		c := open(t, t.TempDir(), Options{})
		d := put(t, c, 1)
		if err := harm(c.path(d)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Get(d); domain.KindOf(err) != domain.KindIntegrity {
			t.Errorf("%s: %v", name, err)
		}
		put(t, c, 1)
		if _, err := c.Get(d); err != nil {
			t.Errorf("%s, written again: %v", name, err)
		}
	}
}

// TestDamagedWorkIsTold: work that is trained again because of the disk is said, and a snapshot that has grown is not read to its end.
func TestDamagedWorkIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		harm  func(dir string) error
		found []int
		told  int
	}{
		"nothing": {func(string) error { return nil }, []int{1, 2}, 0},
		"torn": {func(dir string) error { // as a kill leaves it
			b, err := os.ReadFile(filepath.Join(dir, "work.jsonl"))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "work.jsonl"), b[:len(b)-5], 0o600)
		}, []int{1}, 0},
		"a note changed": {func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, "work.jsonl"))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "work.jsonl"), bytes.Replace(b, []byte(`"boundary":2`), []byte(`"boundary":3`), 1), 0o600)
		}, []int{1}, 1},
		"notes huge":   {func(dir string) error { return os.Truncate(filepath.Join(dir, "work.jsonl"), 1<<40) }, []int{1, 2}, 1},
		"notes gone":   {func(dir string) error { return os.Remove(filepath.Join(dir, "work.jsonl")) }, nil, 1},
		"notes empty":  {func(dir string) error { return os.Truncate(filepath.Join(dir, "work.jsonl"), 0) }, nil, 1},
		"newest grown": {func(dir string) error { return os.Truncate(filepath.Join(dir, "2.safetensors"), 1<<40) }, []int{1}, 1},
		"newest gone":  {func(dir string) error { return os.Remove(filepath.Join(dir, "2.safetensors")) }, []int{1}, 1},
		"older gone":   {func(dir string) error { return os.Remove(filepath.Join(dir, "1.safetensors")) }, []int{2}, 0},
	} {
		dir, told := t.TempDir(), 0
		use := Options{Lost: func(error) { told++ }}
		first := open(t, dir, use)
		slots, err := first.Snapshots(1)
		if err != nil {
			t.Fatal(err)
		}
		for b := 1; b <= 2; b++ {
			if err := slots[0].Save(b, 9, func(w io.Writer) error { _, err := w.Write(make([]byte, 100)); return err }); err != nil {
				t.Fatal(err)
			}
			if err := slots[0].Note(note(7, 1, b, chunk(domain.ChunkID(3+b)))); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.harm(slots[0].dir); err != nil {
			t.Fatal(err)
		}
		if name == "newest grown" {
			if _, err := slots[0].Open(2); domain.KindOf(err) != domain.KindIntegrity {
				t.Errorf("%s: opened with %v", name, err)
			}
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		slots, err = open(t, dir, use).Snapshots(1)
		if err != nil {
			t.Fatal(err)
		}
		if _, found, _ := slots[0].Found(); !slices.Equal(found, c.found) || told != c.told {
			t.Errorf("%s: found %v, told %d times", name, found, told)
		}
	}
}
