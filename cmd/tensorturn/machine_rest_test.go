package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"

	"tensorturn/domain/machine"
)

// A damaged file of the owner's word counts for nothing, not in part: the same word from the hub is then new, and kept.
func TestDamagedRestIsHeardAnew(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, restFile)
	if err := os.WriteFile(path, []byte(`{"hours":["00:00-24:00"],"whileUsed":"damaged"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &agentProcess{opts: agentOptions{dir: dir, logger: zerolog.Nop()}}
	if err := p.startRest(); err != nil || !p.rested.Empty() {
		t.Fatalf("%v; of a damaged file %+v was taken", err, p.rested)
	}
	p.hearRest(machine.Rest{Hours: []string{"00:00-24:00"}})
	if cause, _ := p.rest.Why(nil); cause == "" {
		t.Error("the hub's word is not followed")
	}
	again := &agentProcess{opts: p.opts}
	if err := again.startRest(); err != nil || again.rested.Empty() {
		t.Errorf("%v; the hub's word was not kept", err)
	}
}
