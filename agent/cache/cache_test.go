package cache

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/blob"
)

func open(t *testing.T, dir string, o Options) *Cache {
	t.Helper()
	if o.Free == nil {
		o.Free = func(string) (uint64, error) { return 1 << 40, nil }
	}
	c, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func put(t *testing.T, c *Cache, n int) domain.Digest {
	t.Helper()
	data := bytes.Repeat([]byte{byte(n)}, 100)
	d := blob.Sum(data)
	if err := c.Put(d, data); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestPutGetReopen(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, Options{})
	d := put(t, c, 1)
	put(t, c, 1)
	if got := c.Used(); got != 100 {
		t.Errorf("used %d bytes after the same object twice, want 100", got)
	}
	if err := c.Put(d, []byte("other")); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("wrong bytes: got %v", err)
	}
	if _, err := Open(dir, Options{}); domain.KindOf(err) != domain.KindConflict {
		t.Errorf("second agent on the directory: got %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = open(t, dir, Options{})
	if data, err := c.Get(d); err != nil || len(data) != 100 {
		t.Errorf("after reopening: %d bytes, %v", len(data), err)
	}
	if _, err := c.Get(blob.Sum(nil)); domain.KindOf(err) != domain.KindNotFound {
		t.Errorf("unknown object: got %v", err)
	}
}

func TestDamagedFileIsNoticedAndForgotten(t *testing.T) {
	c := open(t, t.TempDir(), Options{})
	d := put(t, c, 1)
	if err := os.WriteFile(c.path(d), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(d); domain.KindOf(err) != domain.KindIntegrity {
		t.Errorf("damaged: got %v", err)
	}
	if _, err := c.Get(d); domain.KindOf(err) != domain.KindNotFound {
		t.Errorf("after the damage was noticed: got %v", err)
	}
	put(t, c, 1)
	if _, err := c.Get(d); err != nil {
		t.Error("written again:", err)
	}
}

func TestLeastRecentlyUsedGoes(t *testing.T) {
	c := open(t, t.TempDir(), Options{Limit: 300})
	a, b, d := put(t, c, 1), put(t, c, 2), put(t, c, 3)
	if _, err := c.Get(a); err != nil {
		t.Fatal(err)
	}
	e := put(t, c, 4)
	for _, x := range []struct {
		d    domain.Digest
		want bool
	}{{a, true}, {b, false}, {d, true}, {e, true}} {
		if c.Has(x.d) != x.want {
			t.Errorf("%s: has %v, want %v", x.d.Short(), !x.want, x.want)
		}
	}
	if c.Used() != 300 {
		t.Errorf("used %d", c.Used())
	}
}

func TestPinnedStaysUntilItsRoundIsMerged(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir, Options{Limit: 200})
	m, p := put(t, c, 1), put(t, c, 2)
	if err := c.Pin("r-1", 3, m, []domain.Digest{p}); err != nil {
		t.Fatal(err)
	}
	data := []byte("new")
	if err := c.Put(blob.Sum(data), data); domain.KindOf(err) != domain.KindUnavailable || !strings.Contains(err.Error(), "not merged yet") {
		t.Errorf("full of pinned objects: got %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = open(t, dir, Options{Limit: 200})
	c.Drop("r-1", 2)
	c.Drop("r-2", 9)
	if !c.Has(m) || !c.Has(p) || len(c.Pinned()) != 1 {
		t.Error("a pin did not hold until its round")
	}
	c.Drop("r-1", 3)
	if c.Has(m) || c.Has(p) || len(c.Pinned()) != 0 || c.Used() != 0 {
		t.Error("dropped deltas are still there")
	}
}

func TestDiskWithoutSpace(t *testing.T) {
	free := uint64(1000)
	c := open(t, t.TempDir(), Options{Reserve: 900, Free: func(string) (uint64, error) { return free, nil }})
	put(t, c, 1) // exactly what is left above the reserve
	free = 999
	data := bytes.Repeat([]byte{9}, 100)
	err := c.Put(blob.Sum(data), data)
	if domain.KindOf(err) != domain.KindUnavailable || domain.NextOf(err) == "" || !strings.Contains(err.Error(), "999 bytes free") {
		t.Errorf("got %v", err)
	}
	if c.Used() != 100 {
		t.Errorf("used %d after a refused write", c.Used())
	}
	all, err := c.Snapshots(1)
	if err != nil {
		t.Fatal(err)
	}
	s := all[0]
	if err := s.Save(1, 100, nil); domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("snapshot: got %v", err)
	}
}

func TestSnapshots(t *testing.T) {
	c := open(t, t.TempDir(), Options{})
	all, err := c.Snapshots(3)
	if err != nil {
		t.Fatal(err)
	}
	s := all[2]
	save := func(b int, text string) error {
		return s.Save(b, int64(len(text)), func(w io.Writer) error { _, err := io.WriteString(w, text); return err })
	}
	for b := 1; b <= 3; b++ {
		if err := save(b, fmt.Sprint("weights ", b)); err != nil {
			t.Fatal(err)
		}
	}
	boom := errors.New("boom")
	if err := s.Save(3, 1, func(io.Writer) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("the trainer's error: got %v", err)
	}
	s.Prune(2)
	for b, want := range map[int]string{1: "", 2: "weights 2", 3: "weights 3"} {
		if got, _ := read(s, b); got != want {
			t.Errorf("boundary %d: got %q, want %q", b, got, want)
		}
	}
	if err := os.WriteFile(s.path(2), []byte("weights X"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := read(s, 2); domain.KindOf(err) != domain.KindIntegrity {
		t.Errorf("damaged snapshot: got %v", err)
	}
	if err := s.Clear(); err != nil {
		t.Fatal(err)
	}
	if _, err := read(s, 3); domain.KindOf(err) != domain.KindNotFound {
		t.Errorf("after clear: got %v", err)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}

func read(s *Snapshots, boundary int) (string, error) {
	r, err := s.Open(boundary)
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Close() }()
	b, err := io.ReadAll(r)
	return string(b), err
}

// Many workers at once, on few objects and a tight limit: the books stay right.
func TestConcurrent(t *testing.T) {
	c := open(t, t.TempDir(), Options{Limit: 500})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				data := bytes.Repeat([]byte{byte((g + i) % 9)}, 100)
				d := blob.Sum(data)
				if err := c.Put(d, data); err != nil && domain.KindOf(err) != domain.KindUnavailable {
					t.Error(err)
				}
				if _, err := c.Get(d); err != nil && domain.KindOf(err) != domain.KindNotFound {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := int64(len(c.objects)) * 100; c.Used() != n || n > 500 {
		t.Errorf("used %d, objects take %d, limit 500", c.Used(), n)
	}
}
