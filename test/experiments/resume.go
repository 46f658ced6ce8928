package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

// What a run of the language experiments has trained can be kept in a file, so that one that was interrupted goes on. It
// is good for the same program alone: the file names its digest, and another's is thrown away.

// keptRun is the file.
type keptRun struct {
	Program string
	Arms    map[string]measured
}

// resume reads the file, if there is one, and has do write it from now on.
func (b *bench) resume(path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(program)
	b.path, b.program = path, hex.EncodeToString(sum[:])
	raw, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var k keptRun
	if err := json.Unmarshal(raw, &k); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if k.Program == b.program {
		maps.Copy(b.known, k.Arms)
		for key := range k.Arms {
			b.kept[key] = true
		}
	}
	return nil
}

// save writes the file whole or not at all. It is called with the lock held.
func (b *bench) save() error {
	if b.path == "" {
		return nil
	}
	raw, err := json.Marshal(keptRun{Program: b.program, Arms: b.known})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(b.path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(b.path+".new", raw, 0o644); err != nil {
		return err
	}
	return os.Rename(b.path+".new", b.path)
}

// forget removes the file when there is nothing left to go on with.
func (b *bench) forget() error {
	if b.path == "" {
		return nil
	}
	if err := os.Remove(b.path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
