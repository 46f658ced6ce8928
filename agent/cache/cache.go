// Package cache keeps blobs and snapshots on an agent's disk: parts and manifests as content-addressed files, written
// whole or not at all, checked when they are read, within a size limit by removing what was used longest ago; the
// deltas of rounds that are not in the log yet are pinned; and per slot the snapshots of chunk boundaries, with notes by which
// the next process knows what an earlier one has trained (each line and each snapshot has a sum; what does not fit it is not
// believed), and what its coded deltas have lost, in the folder N-losses, which begins empty.
//
// It never talks to a network and never decides what is wanted. The agent's workers call it, many at once.
//
// Dependencies: google/renameio for atomic, synced files (on Windows they are not atomic; a torn one is noticed when it
// is read); gofrs/flock, because two agents in one directory would remove each other's files; x/sys for the free space
// of the disk.
package cache

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/renameio/v2/maybe"

	"tensorturn/domain"
	"tensorturn/domain/blob"
)

// Defaults of Options.
const (
	DefaultLimit   = 20 << 30         // a data set and some models
	DefaultReserve = 512 << 20        // left to the machine's owner, and to the log of the agent
	touchEvery     = 10 * time.Minute // how exactly the order of use survives a restart
)

// Options of Open. Zero fields take the defaults.
type Options struct {
	Limit   int64                            // bytes of parts and manifests
	Reserve int64                            // bytes of the disk that stay free
	Free    func(dir string) (uint64, error) // free bytes of the disk; tests give their own
	Lost    func(err error)                  // hears of what the disk has damaged and is made or fetched again; nil: nobody does
}

// Cache is one directory. Safe for concurrent use.
type Cache struct {
	dir  string
	opts Options
	lock *flock.Flock

	mu      sync.Mutex
	objects map[domain.Digest]*object
	order   *list.List // of domain.Digest, least recently used first
	used    int64      // bytes, with those being written
	pins    map[pin][]domain.Digest
}

type object struct {
	size    int64
	place   *list.Element
	pinned  int // by how many pins
	touched time.Time
}

// Open takes the directory, which it creates if needed, and holds it until Close. Snapshots of an earlier process are
// removed: nothing of its leases survives it.
func Open(dir string, o Options) (*Cache, error) {
	if o.Limit == 0 {
		o.Limit = DefaultLimit
	}
	if o.Reserve == 0 {
		o.Reserve = DefaultReserve
	}
	if o.Free == nil {
		o.Free = freeSpace
	}
	if o.Lost == nil {
		o.Lost = func(error) {}
	}
	c := &Cache{dir: dir, opts: o, objects: map[domain.Digest]*object{}, order: list.New(), pins: map[pin][]domain.Digest{}}
	for _, d := range []string{"", partsDir, pinsDir} {
		if err := c.folder(filepath.Join(dir, d)); err != nil {
			return nil, diskError("open cache", err)
		}
	}
	if err := c.noFolder(filepath.Join(dir, "lock")); err != nil {
		return nil, diskError("open cache", err)
	}
	c.lock = flock.New(filepath.Join(dir, "lock"))
	switch ok, err := c.lock.TryLock(); {
	case err != nil:
		return nil, diskError("open cache", err)
	case !ok:
		return nil, domain.Conflict("open cache", fmt.Sprintf("another agent uses %s", dir), "stop it; a second agent of one computer joins with a directory of its own: tensorturn agent join URL --token T --dir OTHER")
	}
	if err := c.load(); err != nil {
		return nil, errors.Join(err, c.lock.Unlock())
	}
	return c, nil
}

// Close lets the directory go.
func (c *Cache) Close() error { return c.lock.Unlock() }

const (
	partsDir = "parts"
	pinsDir  = "pins"
	slotsDir = "slots"
)

// load reads what is there, oldest use first.
func (c *Cache) load() error {
	type found struct {
		d    domain.Digest
		size int64
		used time.Time
	}
	var all []found
	err := filepath.WalkDir(filepath.Join(c.dir, partsDir), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		d, bad := domain.ParseDigest(e.Name())
		switch {
		case e.IsDir() && bad == nil:
			c.opts.Lost(lost(path, "a folder stands in its place"))
			if err := os.RemoveAll(path); err != nil {
				return err
			}
			return fs.SkipDir
		case e.IsDir():
			return nil
		case bad != nil:
			return os.Remove(path) // left by a write that was cut off
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Size() > maxObject {
			c.opts.Lost(lost(path, "it is longer than any object is, or no file"))
			return os.Remove(path)
		}
		all = append(all, found{d, info.Size(), info.ModTime()})
		return nil
	})
	if err != nil {
		return diskError("open cache", err)
	}
	slices.SortFunc(all, func(a, b found) int {
		if n := a.used.Compare(b.used); n != 0 {
			return n
		}
		return compare(a.d, b.d)
	})
	for _, f := range all {
		c.insert(f.d, f.size, f.used)
		c.used += f.size
	}
	return c.loadPins()
}

// Has reports whether the object is there.
func (c *Cache) Has(d domain.Digest) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.objects[d] != nil
}

// Get reads an object and checks it. domain.KindNotFound when it is not there; domain.KindIntegrity when the disk has
// changed it: it is then gone, and the next Get does not find it.
func (c *Cache) Get(d domain.Digest) ([]byte, error) {
	if !c.use(d) {
		return nil, domain.NotFound("read from cache", fmt.Sprintf("%s is not cached", d.Short()), "")
	}
	data, err := readSmall(c.path(d), maxObject)
	if errors.Is(err, fs.ErrNotExist) {
		c.forget(d)
		return nil, domain.NotFound("read from cache", fmt.Sprintf("%s is no longer cached", d.Short()), "")
	}
	if passing(err) {
		return nil, diskError("read from cache", err)
	}
	why := "it has other bytes than were written"
	if err != nil {
		why = err.Error()
	}
	if err != nil || blob.Sum(data) != d { // also of a bad sector: the same bytes are elsewhere, and would never be read here
		c.forget(d)
		err := lost(c.path(d), why)
		c.opts.Lost(err)
		return nil, err
	}
	return data, nil
}

// Put stores data under its digest; an object that is there already is left as it is. The file is synced before Put
// returns. Room is made by removing what was used longest ago and is not pinned. domain.KindUnavailable when there is
// no room in the limit or on the disk, domain.KindInvalid when the digest is wrong.
func (c *Cache) Put(d domain.Digest, data []byte) error {
	if blob.Sum(data) != d {
		return domain.Invalid("write to cache", fmt.Sprintf("the bytes are not those of %s", d.Short()), "")
	}
	if c.use(d) {
		return nil
	}
	size := int64(len(data))
	if err := c.reserve(size); err != nil {
		return err
	}
	path := c.path(d)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = maybe.WriteFile(path, data, 0o600)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.used -= size
		return diskError("write to cache", err)
	}
	if c.objects[d] != nil { // another writer of the same bytes was faster
		c.used -= size
		return nil
	}
	c.insert(d, size, time.Now())
	return nil
}

// Used is the size of all objects in bytes.
func (c *Cache) Used() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// use marks the object as used now and reports whether it is there.
func (c *Cache) use(d domain.Digest) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.objects[d]
	if o == nil {
		return false
	}
	c.order.MoveToBack(o.place)
	if now := time.Now(); now.Sub(o.touched) > touchEvery {
		o.touched = now
		_ = os.Chtimes(c.path(d), now, now) // only the order after a restart depends on it
	}
	return true
}

// reserve makes room for size bytes and counts them as used.
func (c *Cache) reserve(size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.order.Front(); e != nil && c.used+size > c.opts.Limit; {
		next := e.Next()
		if d := e.Value.(domain.Digest); c.objects[d].pinned == 0 {
			c.remove(d)
		}
		e = next
	}
	if c.used+size > c.opts.Limit {
		return domain.Unavailable("write to cache",
			fmt.Sprintf("its limit of %d bytes is taken by deltas that are not merged yet", c.opts.Limit), "give the agent a larger cache", nil)
	}
	if err := c.space(size); err != nil {
		return err
	}
	c.used += size
	return nil
}

// space refuses what would leave the disk with less than the reserve.
func (c *Cache) space(size int64) error {
	free, err := c.opts.Free(c.dir)
	if err != nil {
		return diskError("measure free space", err)
	}
	if need := uint64(size + c.opts.Reserve); free < need {
		return domain.Unavailable("write to cache",
			fmt.Sprintf("the disk of %s has %d bytes free, %d are needed with the reserve", c.dir, free, need), "free some space on that disk", nil)
	}
	return nil
}

func (c *Cache) insert(d domain.Digest, size int64, used time.Time) {
	c.objects[d] = &object{size: size, place: c.order.PushBack(d), touched: used}
	for _, held := range c.pins {
		if slices.Contains(held, d) {
			c.objects[d].pinned++
		}
	}
}

// remove deletes the object's file; c.mu is held.
func (c *Cache) remove(d domain.Digest) {
	o := c.objects[d]
	if o == nil {
		return
	}
	c.order.Remove(o.place)
	delete(c.objects, d)
	c.used -= o.size
	_ = os.RemoveAll(c.path(d)) // a file that stays is found again at the next start
}

func (c *Cache) forget(d domain.Digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(d)
}

func (c *Cache) path(d domain.Digest) string {
	return filepath.Join(c.dir, partsDir, string(d[:2]), string(d))
}

func compare(a, b domain.Digest) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// diskError is a failure of the disk: time, or its owner, may heal it.
func diskError(op string, err error) error {
	return domain.Unavailable(op, "the disk refuses", "check space and rights of the agent's directory", err)
}
