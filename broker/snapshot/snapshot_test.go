package snapshot_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/broker/snapshot"
	"tensorturn/domain"
)

// key signs as a hub does.
type key struct{ ed25519.PrivateKey }

func newKey(seed byte) key {
	return key{ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))}
}

func (k key) Sign(b []byte) []byte { return ed25519.Sign(k.PrivateKey, b) }
func (k key) Signed(b, sig []byte) bool {
	return ed25519.Verify(k.Public().(ed25519.PublicKey), b, sig)
}

func open(t testing.TB, dir string, seed byte) *snapshot.Store {
	t.Helper()
	s, err := snapshot.Open(dir, newKey(seed))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func example(seq uint64) snapshot.Snapshot {
	return snapshot.Snapshot{Seq: seq, Digest: domain.Digest(strings.Repeat("ab", 32)), Schema: "schema", Parts: []snapshot.Part{
		{Name: "hub", Data: []byte("state of the hub")}, {Name: "view runs", Data: []byte{}}, {Name: "view fleet", Data: bytes.Repeat([]byte{7}, 1000)}}}
}

// all reads the folder: the good ones and why others are none.
func all(s *snapshot.Store, schema domain.Digest) (good []snapshot.Snapshot, bad []string) {
	for n, err := range s.Read(context.Background(), schema) {
		if err != nil {
			bad = append(bad, err.Error())
			continue
		}
		good = append(good, n)
	}
	return good, bad
}

func write(t testing.TB, s *snapshot.Store, seqs ...uint64) {
	t.Helper()
	for _, n := range seqs {
		if err := s.Write(example(n)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNewestComesFirstAndOldOnesGo(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 1)
	write(t, s, 9, 100, 1_000_000, 5_000)
	good, bad := all(s, "schema")
	if d := cmp.Diff([]snapshot.Snapshot{example(1_000_000), example(5_000)}, good); d != "" || bad != nil {
		t.Fatalf("%s %v", d, bad)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(files) != snapshot.Keep {
		t.Errorf("%d files are kept", len(files))
	}
}

func TestForeignAndOtherSchemasAreLeftAside(t *testing.T) {
	dir := t.TempDir()
	write(t, open(t, dir, 1), 10)
	if good, bad := all(open(t, dir, 2), "schema"); good != nil || len(bad) != 1 || !strings.Contains(bad[0], "did not sign") {
		t.Errorf("of another hub: %v %v", good, bad)
	}
	if good, bad := all(open(t, dir, 1), "other"); good != nil || len(bad) != 1 || !strings.Contains(bad[0], "another version") {
		t.Errorf("of another schema: %v %v", good, bad)
	}
}

// TestEveryChangedByteIsFound flips and cuts at every place of a file; the one before it is still given.
func TestEveryChangedByteIsFound(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 1)
	write(t, s, 5, 10)
	path := filepath.Join(dir, fmt.Sprintf("%020d.snapshot", 10))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		good, bad := all(s, "schema")
		if len(bad) != 1 || len(good) != 1 || good[0].Seq != 5 {
			t.Fatalf("%s: %d good, %v", what, len(good), bad)
		}
	}
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0x10
		check(fmt.Sprint("byte ", i), b)
		check(fmt.Sprint("cut at ", i), whole[:i])
	}
	check("a byte more", append(bytes.Clone(whole), 0))
}

func TestTooLargeIsNotWritten(t *testing.T) {
	s := open(t, t.TempDir(), 1)
	n := example(1)
	for range 64 - len(n.Parts) {
		n.Parts = append(n.Parts, snapshot.Part{Name: "more"})
	}
	if err := s.Write(n); err != nil {
		t.Fatalf("64 parts: %v", err)
	}
	n.Parts = append(n.Parts, snapshot.Part{Name: "one more"})
	if err := s.Write(n); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("65 parts: %v", err)
	}
}

// FuzzRead: no file ends the process. The signature keeps bytes of others out; here they are let in.
func FuzzRead(f *testing.F) {
	dir := f.TempDir()
	s := open(f, dir, 1)
	write(f, s, 10)
	b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%020d.snapshot", 10)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		s, err := snapshot.Open(dir, anybody{})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%020d.snapshot", 10)), b, 0o600); err != nil {
			t.Fatal(err)
		}
		all(s, "schema")
	})
}

type anybody struct{}

func (anybody) Sign([]byte) []byte        { return make([]byte, 64) }
func (anybody) Signed(_, sig []byte) bool { return len(sig) == 64 }

func TestFileInPlaceOfTheFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	if err := os.WriteFile(dir, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir, 1).Write(example(5)); err != nil {
		t.Error(err)
	}
}
