package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// disk is a file system that is told every call of the hub and knows which bytes a loss of power would leave. It behaves as
// ext4 does by default: an fsync makes the file's bytes durable, and with the journal every change of names before it; what was
// not synced may be there or not, page by page; names change in their order.
type disk struct {
	root  string
	files map[string]*inode // by path, as the running system sees it
	names []naming          // since the last sync of anything, in order
	old   map[string]*inode // the names that are durable
	open  map[int64]*handle
	dirs  map[string]bool
}

// inode is a file's bytes: those that are durable, and the writes since.
type inode struct {
	durable []byte
	pending []patch
	size    int64 // as the running system sees it
}

// patch is a write or a cut that was not synced.
type patch struct {
	at   int64
	data []byte
	cut  bool // the file ends at at
}

// naming is a change of a directory.
type naming struct {
	from, to string // rename; from alone: unlink; to alone: create
	file     *inode
}

type handle struct {
	path string
	file *inode
	pos  int64
	end  bool // O_APPEND
}

func newDisk(root string) *disk {
	return &disk{root: root, files: map[string]*inode{}, old: map[string]*inode{}, open: map[int64]*handle{}, dirs: map[string]bool{}}
}

// page is what a disk writes as a whole.
const page = 4 << 10

// apply takes one finished call. lost says that syncs do nothing: the control of the experiment.
func (d *disk) apply(c call, lost bool) error {
	f := c.fields()
	if c.result < 0 {
		return nil
	}
	switch c.name {
	case "openat":
		return d.openat(f, c.result)
	case "close":
		delete(d.open, number(f[0]))
	case "dup", "dup2", "dup3":
		if h := d.open[number(f[0])]; h != nil {
			d.open[c.result] = h
		}
	case "lseek":
		if h := d.open[number(f[0])]; h != nil {
			h.pos = c.result
		}
	case "write", "pwrite64":
		return d.write(c, f)
	case "ftruncate":
		if h := d.open[number(f[0])]; h != nil {
			h.file.cut(number(f[1]))
		}
	case "fsync", "fdatasync":
		if h := d.open[number(f[0])]; h != nil && !lost {
			d.sync(h.file)
		}
	case "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat":
		return d.rename(c, f)
	case "writev", "pwritev", "truncate", "fallocate", "copy_file_range", "sendfile":
		if h := d.open[number(f[0])]; h != nil {
			return fmt.Errorf("%s of %s: a call that the model does not know", c.name, h.path)
		}
	}
	return nil
}

func (d *disk) openat(f []string, fd int64) error {
	path, err := text(f[1])
	if err != nil {
		return err
	}
	delete(d.open, fd)
	if !strings.HasPrefix(path, d.root) || strings.Contains(f[2], "O_DIRECTORY") {
		return nil
	}
	file := d.files[path]
	if file == nil {
		if !strings.Contains(f[2], "O_CREAT") {
			if info, err := os.Stat(path); err != nil || info.IsDir() { // a folder opened to be synced: names become durable
				d.open[fd] = &handle{path: path, file: &inode{}}
			}
			return nil
		}
		file = &inode{}
		d.files[path] = file
		d.names = append(d.names, naming{to: path, file: file})
	} else if strings.Contains(f[2], "O_TRUNC") {
		file.cut(0)
	}
	d.open[fd] = &handle{path: path, file: file, end: strings.Contains(f[2], "O_APPEND")}
	return nil
}

func (d *disk) write(c call, f []string) error {
	h := d.open[number(f[0])]
	if h == nil || c.result == 0 {
		return nil
	}
	data, err := text(f[1])
	if err != nil {
		return fmt.Errorf("write to %s: %w", h.path, err)
	}
	data = data[:c.result]
	at := h.pos
	switch {
	case c.name == "pwrite64":
		at = number(f[3])
	case h.end:
		at = h.file.size
	}
	h.file.pending = append(h.file.pending, patch{at: at, data: []byte(data)})
	h.file.size = max(h.file.size, at+c.result)
	if c.name == "write" {
		h.pos = at + c.result
	}
	return nil
}

func (n *inode) cut(at int64) {
	n.pending = append(n.pending, patch{at: at, cut: true})
	n.size = at
}

// put applies a patch to bytes.
func (p patch) put(b []byte) []byte {
	if p.cut {
		if int64(len(b)) > p.at {
			return b[:p.at]
		}
		return append(b, make([]byte, p.at-int64(len(b)))...)
	}
	if end := p.at + int64(len(p.data)); end > int64(len(b)) {
		b = append(b, make([]byte, end-int64(len(b)))...)
	}
	copy(b[p.at:], p.data)
	return b
}

func (d *disk) sync(n *inode) {
	for _, p := range n.pending {
		n.durable = p.put(n.durable)
	}
	n.pending = nil
	for _, c := range d.names {
		d.old = c.apply(d.old)
	}
	d.names = nil
}

func (c naming) apply(m map[string]*inode) map[string]*inode {
	if c.from != "" {
		delete(m, c.from)
	}
	if c.to != "" {
		m[c.to] = c.file
	}
	return m
}

func (d *disk) rename(c call, f []string) error {
	var paths []string
	for _, a := range f {
		if strings.HasPrefix(a, `"`) {
			p, err := text(a)
			if err != nil {
				return err
			}
			paths = append(paths, p)
		}
	}
	if len(paths) == 0 || !strings.HasPrefix(paths[0], d.root) {
		return nil
	}
	switch {
	case strings.HasPrefix(c.name, "mkdir"):
		return nil // folders are made with their files
	case strings.HasPrefix(c.name, "rename") && len(paths) == 2:
		return d.move(paths[0], paths[1])
	}
	for _, path := range slices.Sorted(maps.Keys(d.files)) { // of a folder, too
		if path == paths[0] || strings.HasPrefix(path, paths[0]+"/") {
			delete(d.files, path)
			d.names = append(d.names, naming{from: path})
		}
	}
	return nil
}

func (d *disk) move(from, to string) error {
	for _, path := range slices.Sorted(maps.Keys(d.files)) {
		file := d.files[path]
		if path != from && !strings.HasPrefix(path, from+"/") {
			continue
		}
		target := to + strings.TrimPrefix(path, from)
		delete(d.files, path)
		d.files[target] = file
		d.names = append(d.names, naming{from: path, to: target, file: file})
	}
	return nil
}

// loss writes what a loss of power leaves to dir. Of what was not synced, rng keeps some; with rng nil nothing of it stays.
func (d *disk) loss(rng *rand.Rand, dir string) error {
	names := map[string]*inode{}
	for p, n := range d.old {
		names[p] = n
	}
	keep := 0
	if rng != nil && len(d.names) > 0 {
		keep = rng.IntN(len(d.names) + 1)
	}
	for _, c := range d.names[:keep] {
		names = c.apply(names)
	}
	for _, path := range slices.Sorted(maps.Keys(names)) {
		n := names[path]
		b := append([]byte(nil), n.durable...)
		for _, p := range n.pending {
			if rng != nil {
				b = p.some(rng, b)
			}
		}
		target := filepath.Join(dir, strings.TrimPrefix(path, d.root))
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(target, b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// some applies the pages of a patch that happened to reach the disk.
func (p patch) some(rng *rand.Rand, b []byte) []byte {
	if p.cut {
		if rng.IntN(2) == 0 {
			return p.put(b)
		}
		return b
	}
	for from := int64(0); from < int64(len(p.data)); {
		to := min(int64(len(p.data)), (p.at+from)/page*page+page-p.at)
		if rng.IntN(2) == 0 {
			b = patch{at: p.at + from, data: p.data[from:to]}.put(b)
		}
		from = to
	}
	return b
}
