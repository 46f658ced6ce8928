package embedded

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rs/zerolog"
)

// Only the newest blocks of each stream are written anew, in the order of their numbers, and every byte stays.
func TestRewriteTails(t *testing.T) {
	dir := t.TempDir()
	msgs := filepath.Join(dir, "jetstream", "ACC", "streams", "EVENTS", "msgs")
	if err := os.MkdirAll(msgs, 0o700); err != nil {
		t.Fatal(err)
	}
	inode := map[string]os.FileInfo{}
	for _, name := range []string{"2.blk", "9.blk", "10.blk", "index.db"} {
		if err := os.WriteFile(filepath.Join(msgs, name), []byte("bytes of "+name), 0o640); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(msgs, name))
		if err != nil {
			t.Fatal(err)
		}
		inode[name] = info
	}
	if err := rewriteTails(dir); err != nil {
		t.Fatal(err)
	}
	var renewed []string
	for _, name := range []string{"2.blk", "9.blk", "10.blk", "index.db"} {
		b, err := os.ReadFile(filepath.Join(msgs, name))
		if err != nil || string(b) != "bytes of "+name {
			t.Errorf("%s: %q %v", name, b, err)
		}
		info, err := os.Stat(filepath.Join(msgs, name))
		if err != nil {
			t.Fatal(err)
		}
		if !os.SameFile(info, inode[name]) {
			renewed = append(renewed, name)
		}
		if info.Mode() != inode[name].Mode() {
			t.Errorf("%s has mode %s, had %s", name, info.Mode(), inode[name].Mode())
		}
	}
	if !slices.Equal(renewed, []string{"9.blk", "10.blk"}) {
		t.Errorf("renewed %v", renewed)
	}
	if err := rewriteTails(filepath.Join(dir, "nothing")); err != nil {
		t.Errorf("a store without streams: %v", err)
	}
}

// The server's words for a store that has given up are those of the pinned version.
func TestBroken(t *testing.T) {
	l := &logger{log: zerolog.Nop()}
	l.Errorf("JetStream failed to store a msg on stream '%s > %s': %v", "A", "EVENTS", "maximum bytes exceeded")
	l.Warnf("Filestore [%s] Resource not found: %v", "EVENTS", "x")
	if l.broken() != "" {
		t.Errorf("broken: %s", l.broken())
	}
	l.Errorf("Filestore [EVENTS] Critical write error: %v", "input/output error")
	l.Errorf("Filestore [EVENTS] Critical write error: %v", "another")
	if want := "Filestore [EVENTS] Critical write error: input/output error"; l.broken() != want {
		t.Errorf("broken: %q", l.broken())
	}
	l.reset()
	if l.broken() != "" {
		t.Errorf("broken after a fresh start: %s", l.broken())
	}
	l.Errorf("File system permission denied while writing, disabling JetStream")
	if l.broken() == "" {
		t.Error("a store without permissions is not broken")
	}
}
