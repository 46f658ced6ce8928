package cache

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2/maybe"

	"tensorturn/domain"
)

// PinLimit is how long a pin holds at most: a run that has ended is never named as merged again.
const PinLimit = 24 * time.Hour

// pin names a delta that must stay until its round is in the log.
type pin struct {
	run   domain.RunID
	round int
	blob  domain.Digest
}

func (p pin) file() string { return fmt.Sprintf("%s.%d.%s", p.run, p.round, p.blob) }

// Pin keeps the objects of a delta (its manifest blob and all parts) until Drop names their round, over restarts too.
func (c *Cache) Pin(run domain.RunID, round int, blob domain.Digest, objects []domain.Digest) error {
	p := pin{run, round, blob}
	objects = append([]domain.Digest{blob}, objects...)
	var b strings.Builder
	for _, d := range objects {
		b.WriteString(string(d) + "\n")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pins[p] != nil {
		return nil
	}
	if err := maybe.WriteFile(filepath.Join(c.dir, pinsDir, p.file()), []byte(b.String()), 0o600); err != nil {
		return diskError("pin delta", err)
	}
	c.hold(p, objects)
	return nil
}

// Drop removes the deltas of the run's rounds up to this one, and their pins.
func (c *Cache) Drop(run domain.RunID, round int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.pins { // the order does not matter: all of them go
		if p.run == run && p.round <= round {
			c.release(p)
		}
	}
}

func (c *Cache) hold(p pin, objects []domain.Digest) {
	c.pins[p] = objects
	for _, d := range objects {
		if o := c.objects[d]; o != nil {
			o.pinned++
		}
	}
}

// release removes the pin and every object that only it kept; c.mu is held.
func (c *Cache) release(p pin) {
	for _, d := range c.pins[p] {
		if o := c.objects[d]; o != nil {
			o.pinned--
			if o.pinned == 0 {
				c.remove(d)
			}
		}
	}
	delete(c.pins, p)
	_ = os.Remove(filepath.Join(c.dir, pinsDir, p.file())) // a pin that stays ends with PinLimit
}

// loadPins reads the pins of earlier processes and ends the old ones.
func (c *Cache) loadPins() error {
	dir := filepath.Join(c.dir, pinsDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return diskError("open cache", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		p, ok := parsePin(e.Name())
		info, err := e.Info()
		if !ok || err != nil {
			_ = os.RemoveAll(path)
			continue
		}
		data, err := readSmall(path, maxPin)
		if passing(err) {
			return diskError("open cache", err)
		}
		if err != nil { // the delta is no longer kept from being removed, and is then made again
			c.opts.Lost(lost(path, err.Error()))
			_ = os.RemoveAll(path)
			continue
		}
		var objects []domain.Digest
		for _, l := range strings.Fields(string(data)) {
			if d, err := domain.ParseDigest(l); err == nil {
				objects = append(objects, d)
			}
		}
		c.hold(p, objects)
		if time.Since(info.ModTime()) > PinLimit {
			c.release(p)
		}
	}
	return nil
}

func parsePin(name string) (pin, bool) {
	f := strings.Split(name, ".")
	if len(f) != 3 || !domain.ValidID(f[0]) {
		return pin{}, false
	}
	round, err := strconv.Atoi(f[1])
	d, bad := domain.ParseDigest(f[2])
	return pin{domain.RunID(f[0]), round, d}, err == nil && bad == nil && round >= 0
}

// Pinned lists the blobs that are pinned, in order of their digests: for people and tests.
func (c *Cache) Pinned() []domain.Digest {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ds []domain.Digest
	for p := range c.pins {
		ds = append(ds, p.blob)
	}
	slices.Sort(ds)
	return ds
}
