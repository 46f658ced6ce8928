package kit

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Blocks lists the files in which the stopped hub keeps the records of a stream, in order.
func (p *Pool) Blocks(stream string) []string {
	p.tb.Helper()
	files, err := filepath.Glob(filepath.Join(p.HubDir(), "store", "jetstream", "*", "streams", stream, "msgs", "*.blk"))
	if err != nil || len(files) == 0 {
		p.tb.Fatalf("no blocks of stream %s: %v", stream, err)
	}
	slices.Sort(files)
	return files
}

// Flip changes one byte of a file and gives a function that sets it back.
func (p *Pool) Flip(file string, at int64, mask byte) (undo func()) {
	p.tb.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		p.tb.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		p.tb.Fatal(err)
	}
	b[0] ^= mask
	if _, err := f.WriteAt(b, at); err != nil {
		p.tb.Fatal(err)
	}
	return func() { p.Flip(file, at, mask) }
}

// CopyHub puts the hub's folder aside and gives a function that brings it back as it was.
func (p *Pool) CopyHub() (restore func()) {
	p.tb.Helper()
	kept := filepath.Join(p.tb.TempDir(), "hub")
	p.CopyTree(p.HubDir(), kept)
	return func() {
		p.tb.Helper()
		if err := os.RemoveAll(p.HubDir()); err != nil {
			p.tb.Fatal(err)
		}
		p.CopyTree(kept, p.HubDir())
	}
}

// CopyTree copies folders and files with their modes: a hub refuses keys that others can read.
func (p *Pool) CopyTree(from, to string) {
	p.tb.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, info.Mode().Perm())
	})
	if err != nil {
		p.tb.Fatal(err)
	}
}
