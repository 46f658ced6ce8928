package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"tensorturn/domain"
)

// shelf is a store in memory that counts what is asked of it.
type shelf struct {
	objects map[domain.Digest][]byte
	gets    []domain.Digest
	puts    []domain.Digest
}

func newShelf() *shelf { return &shelf{objects: map[domain.Digest][]byte{}} }

func (s *shelf) put(_ context.Context, d domain.Digest, b []byte) error {
	s.puts = append(s.puts, d)
	s.objects[d] = bytes.Clone(b)
	return nil
}

func (s *shelf) get(_ context.Context, d domain.Digest) ([]byte, error) {
	s.gets = append(s.gets, d)
	b, ok := s.objects[d]
	if !ok {
		return nil, domain.NotFound("get", "no such object", "")
	}
	return b, nil
}

// pattern gives n bytes that differ from part to part.
func pattern(n int) []byte {
	b := make([]byte, n)
	x := uint64(n) + 1
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
	return b
}

func store(t testing.TB, s *shelf, data []byte) domain.Digest {
	t.Helper()
	w := NewWriter(t.Context(), s.put)
	if _, err := io.Copy(w, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	id, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 1000, PartBytes - 1, PartBytes, PartBytes + 1, 2 * PartBytes, 2*PartBytes + 12345} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s, data := newShelf(), pattern(n)
			id := store(t, s, data)
			if want := (n + PartBytes - 1) / PartBytes; len(s.puts) != want+1 || s.puts[want] != id {
				t.Fatalf("put %d objects, want %d parts and the manifest last", len(s.puts), want)
			}
			r, err := Open(t.Context(), id, s.get)
			if err != nil {
				t.Fatal(err)
			}
			if r.Size() != int64(n) || r.Manifest().Digest() != id {
				t.Fatalf("size %d, id %s", r.Size(), r.Manifest().Digest())
			}
			got, err := io.ReadAll(r)
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("read %d bytes, %v", len(got), err)
			}
			if len(s.gets) != len(s.puts) {
				t.Fatalf("a sequential read fetched %d objects of %d", len(s.gets), len(s.puts))
			}
		})
	}
}

func TestReaderObeysIotest(t *testing.T) {
	s, data := newShelf(), pattern(3000)
	r, err := Open(t.Context(), store(t, s, data), s.get)
	if err != nil {
		t.Fatal(err)
	}
	if err := iotest.TestReader(io.NewSectionReader(r, 0, r.Size()), data); err != nil {
		t.Fatal(err)
	}
	if err := iotest.TestReader(struct{ io.Reader }{r}, data); err != nil {
		t.Fatal(err)
	}
}

func TestReadAtCrossesPartsAndKeepsFew(t *testing.T) {
	s, data := newShelf(), pattern(6*PartBytes-7)
	r, err := Open(t.Context(), store(t, s, data), s.get)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 100)
	for _, off := range []int{0, PartBytes - 50, 3*PartBytes - 1, 5*PartBytes - 99, len(data) - 100} {
		if n, err := r.ReadAt(p, int64(off)); n != 100 || err != nil || !bytes.Equal(p, data[off:off+100]) {
			t.Fatalf("at %d: %d bytes, %v", off, n, err)
		}
	}
	if n, err := r.ReadAt(p, int64(len(data)-10)); n != 10 || err != io.EOF {
		t.Fatalf("over the end: %d, %v", n, err)
	}
	if _, err := r.ReadAt(p, -1); domain.KindOf(err) != domain.KindInvalid {
		t.Fatalf("negative offset: %v", err)
	}
	if len(r.recent) != MaxCachedParts {
		t.Fatalf("keeps %d parts, want %d", len(r.recent), MaxCachedParts)
	}
	before := len(s.gets)
	if _, err := r.ReadAt(p, 5*PartBytes); err != nil || len(s.gets) != before {
		t.Fatalf("a kept part was fetched again (%d), %v", len(s.gets)-before, err)
	}
	if _, err := r.ReadAt(p, 0); err != nil || len(s.gets) != before+1 {
		t.Fatalf("part 0 was used least recently, yet kept: %d fetches, %v", len(s.gets)-before, err)
	}
}

func TestReadAtFromManyGoroutines(t *testing.T) {
	s, data := newShelf(), pattern(2*PartBytes)
	r, err := Open(t.Context(), store(t, s, data), s.get)
	if err != nil {
		t.Fatal(err)
	}
	fail := make(chan error, 8)
	for g := range 8 {
		go func() {
			p := make([]byte, 64)
			for i := range 50 {
				off := (g*7919 + i*104729) % (len(data) - 64)
				if _, err := r.ReadAt(p, int64(off)); err != nil || !bytes.Equal(p, data[off:off+64]) {
					fail <- fmt.Errorf("at %d: %w", off, err)
					return
				}
			}
			fail <- nil
		}()
	}
	for range 8 {
		if err := <-fail; err != nil {
			t.Error(err)
		}
	}
}

func TestDamageNamesTheDigest(t *testing.T) {
	s, data := newShelf(), pattern(PartBytes+10)
	id := store(t, s, data)
	first := s.puts[0]
	open := func() (*Reader, error) { return Open(t.Context(), id, s.get) }

	good := s.objects[first]
	bad := bytes.Clone(good)
	bad[77] ^= 1
	s.objects[first] = bad
	r, err := open()
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.ReadFull(r, make([]byte, 100))
	if n != 0 || domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), string(first)) {
		t.Fatalf("flipped bit: %d bytes, %v", n, err)
	}
	if n, err := r.ReadAt(make([]byte, 100), 0); n != 0 || domain.KindOf(err) != domain.KindIntegrity {
		t.Fatalf("flipped bit, at random: %d bytes, %v", n, err)
	}

	delete(s.objects, first)
	r, _ = open()
	if _, err := io.ReadAll(r); domain.KindOf(err) != domain.KindNotFound || !strings.Contains(err.Error(), string(first)) {
		t.Fatalf("missing part: %v", err)
	}

	s.objects[id] = append(s.objects[id], '\n')
	if _, err := open(); domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), string(id)) {
		t.Fatalf("damaged manifest: %v", err)
	}
	delete(s.objects, id)
	if _, err := open(); domain.KindOf(err) != domain.KindNotFound || !strings.Contains(err.Error(), string(id)) {
		t.Fatalf("missing manifest: %v", err)
	}

	other := []byte("not a manifest")
	s.objects[Sum(other)] = other
	if _, err := Open(t.Context(), Sum(other), s.get); domain.KindOf(err) != domain.KindIntegrity {
		t.Fatalf("an object that is no manifest: %v", err)
	}
}

// A manifest may name a right digest and a wrong size: the part then has another length than its place.
func TestPartOfWrongLength(t *testing.T) {
	s := newShelf()
	short := []byte("short")
	s.objects[Sum(short)] = short
	m := Manifest{Size: 6, Parts: []domain.Digest{Sum(short)}}
	s.objects[m.Digest()] = m.Encode()
	r, err := Open(t.Context(), m.Digest(), s.get)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), string(Sum(short))) {
		t.Fatalf("got %v", err)
	}
}

func TestWriterKeepsItsFirstError(t *testing.T) {
	full := domain.Unavailable("put", "disk full", "free some space", nil)
	calls := 0
	w := NewWriter(t.Context(), func(context.Context, domain.Digest, []byte) error { calls++; return full })
	_, err := w.Write(make([]byte, PartBytes+1))
	if domain.KindOf(err) != domain.KindUnavailable || !errors.Is(err, full) {
		t.Fatalf("got %v", err)
	}
	if _, again := w.Write([]byte{1}); again != err {
		t.Fatalf("second write: %v", again)
	}
	if _, again := w.Close(); again != err || calls != 1 {
		t.Fatalf("close: %v after %d puts", again, calls)
	}
	w = NewWriter(t.Context(), newShelf().put)
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte{1}); err == nil {
		t.Fatal("wrote behind the end")
	}
}

func TestLimitOfSize(t *testing.T) {
	w := NewWriter(t.Context(), newShelf().put)
	w.manifest.Size = domain.MaxBlobBytes - PartBytes
	if _, err := w.Write(make([]byte, PartBytes)); err != nil {
		t.Fatalf("at the limit: %v", err)
	}
	w = NewWriter(t.Context(), newShelf().put)
	w.manifest.Size = domain.MaxBlobBytes - PartBytes + 1
	if _, err := w.Write(make([]byte, PartBytes)); domain.KindOf(err) != domain.KindInvalid {
		t.Fatalf("behind the limit: %v", err)
	}
	if MaxManifestBytes > PartBytes {
		t.Fatalf("the largest manifest has %d bytes and does not fit a part", MaxManifestBytes)
	}
	largest := Manifest{Size: domain.MaxBlobBytes, Parts: make([]domain.Digest, domain.MaxBlobBytes/PartBytes)}
	for i := range largest.Parts {
		largest.Parts[i] = Sum(nil)
	}
	b := largest.Encode()
	if len(b) != MaxManifestBytes {
		t.Fatalf("the largest manifest has %d bytes, the constant says %d", len(b), MaxManifestBytes)
	}
	if _, err := Parse(b); err != nil {
		t.Fatal(err)
	}
}
