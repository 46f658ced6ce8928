package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// What a run of the language experiments has trained can be kept in a file, so that one that was interrupted goes on. It
// is good for the same program alone: the file names its digest, and another's is thrown away.

// keptRun is the file.
type keptRun struct {
	Program string
	Arms    map[string]keptArm
}

// keptArm is measured, for JSON.
type keptArm struct {
	Loss, Validation, Time  float64
	Rounds, Deltas          int
	Samples, Up, Down       int64
	Payload, File           int64
	Refused                 map[string]int
	Twice, Missing, Dropped int
}

func (m measured) kept() keptArm {
	return keptArm{m.loss, m.validation, m.time, m.rounds, m.deltas, m.samples, m.up, m.down, m.payload, m.file, m.refused, m.twice, m.missing, m.dropped}
}

func (k keptArm) measured() measured {
	return measured{figures{loss: k.Loss, time: k.Time, rounds: k.Rounds, samples: k.Samples, up: k.Up, down: k.Down, deltas: k.Deltas, payload: k.Payload,
		file: k.File, refused: k.Refused, twice: k.Twice, missing: k.Missing, dropped: k.Dropped}, k.Validation}
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
		for key, a := range k.Arms {
			b.known[key] = a.measured()
		}
	}
	return nil
}

// save writes the file whole or not at all. It is called with the lock held.
func (b *bench) save() error {
	if b.path == "" {
		return nil
	}
	k := keptRun{Program: b.program, Arms: map[string]keptArm{}}
	for key, m := range b.known {
		k.Arms[key] = m.kept()
	}
	raw, err := json.Marshal(k)
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
