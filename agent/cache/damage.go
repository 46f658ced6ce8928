package cache

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"tensorturn/domain"
)

// Limits of what is read into memory: a file that the disk has made longer is no longer ours.
const (
	maxObject = domain.MaxPartBytes // a part or a manifest
	maxPin    = 4 << 20             // a line for each part of the longest blob
)

// readSmall reads a file of most bytes at most.
func readSmall(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > most {
		return nil, fmt.Errorf("it has %d bytes, and %d at most were written", info.Size(), most)
	}
	b := make([]byte, info.Size())
	_, err = io.ReadFull(f, b)
	return b, err
}

// passing reports whether a failure to read says nothing of the file: the process has too many open.
func passing(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// lost is the error for a file of the cache that is made or fetched again.
func lost(path, why string) error {
	return domain.Integrity("read from cache", fmt.Sprintf("%s: %s", filepath.Base(path), why), "check the disk of "+filepath.Dir(path))
}

// folder makes a folder of the cache, also where a file stands in its place.
func (c *Cache) folder(path string) error {
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
		c.opts.Lost(lost(path, "a file stands in the place of a folder"))
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return os.MkdirAll(path, 0o700)
}

// noFolder takes a folder away that stands in the place of a file of the cache: the file could never be written again.
func (c *Cache) noFolder(path string) error {
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		return nil
	}
	c.opts.Lost(lost(path, "a folder stands in its place"))
	return os.RemoveAll(path)
}
