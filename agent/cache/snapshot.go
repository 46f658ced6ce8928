package cache

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"tensorturn/domain"
)

// Snapshots holds the weights of one slot at chunk boundaries, and notes what they hold. Its files outlive the process but
// are not synced: a machine that loses power loses work, no more. What was written is remembered, so that a damaged file is
// noticed when it is read. For one goroutine.
type Snapshots struct {
	cache *Cache
	dir   string
	sums  map[int]saved
	lines int // of the notes
}

// saved is what was written for a boundary. Size is 0 where an earlier program has not noted it.
type saved struct {
	sum  [sha256.Size]byte
	size int64
}

// Snapshots gives the snapshot directories of a machine of n slots, with what an earlier process has left in them: Found
// tells, Clear removes it.
func (c *Cache) Snapshots(n int) ([]*Snapshots, error) {
	if err := c.clearSlots(n); err != nil {
		return nil, err
	}
	var out []*Snapshots
	for slot := range n {
		s := &Snapshots{cache: c, dir: filepath.Join(c.dir, slotsDir, strconv.Itoa(slot)), sums: map[int]saved{}}
		if err := errors.Join(c.folder(s.dir), c.noFolder(s.notes())); err != nil {
			return nil, diskError("open snapshots", err)
		}
		out = append(out, s)
	}
	return out, nil
}

// Losses gives the directory for what a slot's coded deltas have lost, empty: the same kind of files, numbered as their
// owner likes.
func (c *Cache) Losses(slot int) (*Snapshots, error) {
	s := &Snapshots{cache: c, dir: filepath.Join(c.dir, slotsDir, strconv.Itoa(slot)+"-losses")}
	if err := s.Clear(); err != nil {
		return nil, err
	}
	return s, nil
}

// Save writes the snapshot of a boundary, of about size bytes, whole or not at all. An error of write itself is given
// as it is; the disk's are domain.KindUnavailable.
func (s *Snapshots) Save(boundary int, size int64, write func(io.Writer) error) error {
	if err := s.cache.space(size); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.dir, "new-*")
	if err != nil {
		return diskError("save snapshot", err)
	}
	sum := sha256.New()
	out := &watched{w: f}
	b := bufio.NewWriterSize(io.MultiWriter(out, sum), 1<<16)
	err = write(b)
	if err == nil {
		err = b.Flush()
	}
	if out.err != nil {
		err = diskError("save snapshot", out.err)
	}
	if cerr := f.Close(); err == nil && cerr != nil {
		err = diskError("save snapshot", cerr)
	}
	if err == nil {
		rerr := s.cache.noFolder(s.path(boundary))
		if rerr == nil {
			rerr = os.Rename(f.Name(), s.path(boundary))
		}
		if rerr != nil {
			err = diskError("save snapshot", rerr)
		}
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	s.sums[boundary] = saved{[sha256.Size]byte(sum.Sum(nil)), out.n}
	return nil
}

// Open reads a snapshot. The last read gives domain.KindIntegrity when the bytes are not those that were saved.
func (s *Snapshots) Open(boundary int) (io.ReadCloser, error) {
	was, ok := s.sums[boundary]
	if !ok {
		return nil, domain.NotFound("open snapshot", fmt.Sprintf("there is none of %d chunks", boundary), "")
	}
	f, err := os.Open(s.path(boundary))
	if err != nil {
		return nil, diskError("open snapshot", err)
	}
	if info, err := f.Stat(); err != nil || was.size > 0 && info.Size() != was.size { // one that has grown is not read to its end
		return nil, errors.Join(lost(f.Name(), "it has another length than was saved"), f.Close())
	}
	return &checked{f: f, r: bufio.NewReaderSize(f, 1<<16), hash: sha256.New(), want: was.sum}, nil
}

// Prune removes every snapshot below boundary keep.
func (s *Snapshots) Prune(keep int) {
	for b := range s.sums {
		if b < keep {
			delete(s.sums, b)
			_ = os.Remove(s.path(b)) // cleared with the next lease at the latest
		}
	}
}

// Remove drops one snapshot.
func (s *Snapshots) Remove(boundary int) {
	delete(s.sums, boundary)
	_ = os.Remove(s.path(boundary)) // nobody can open it any more
}

// Clear removes all snapshots and what is noted of them.
func (s *Snapshots) Clear() error {
	s.sums, s.lines = map[int]saved{}, 0
	if err := os.RemoveAll(s.dir); err != nil {
		return diskError("clear snapshots", err)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return diskError("clear snapshots", err)
	}
	return nil
}

func (s *Snapshots) path(boundary int) string {
	return filepath.Join(s.dir, strconv.Itoa(boundary)+".safetensors")
}

// watched counts bytes and remembers the disk's error, so that it is told from the trainer's.
type watched struct {
	w   io.Writer
	n   int64
	err error
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.n += int64(n)
	if err != nil {
		w.err = err
	}
	return n, err
}

// checked compares what was read with what was written.
type checked struct {
	f    *os.File
	r    io.Reader
	hash hash.Hash
	want [sha256.Size]byte
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.hash.Write(p[:n])
	if errors.Is(err, io.EOF) && [sha256.Size]byte(c.hash.Sum(nil)) != c.want {
		return n, domain.Integrity("read snapshot", "the file has other bytes than were saved", "check the disk of the agent's directory")
	}
	return n, err
}

func (c *checked) Close() error { return c.f.Close() }
