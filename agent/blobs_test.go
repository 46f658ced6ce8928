package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tensorturn/agent/cache"
	"tensorturn/domain"
	"tensorturn/domain/blob"
)

// blobServer is the hub's store in memory, with faults: cut is called before a request is served and says after how
// many bytes the connection is torn, −1 for never.
type blobServer struct {
	*httptest.Server
	mu      sync.Mutex
	objects map[domain.Digest][]byte
	puts    []domain.Digest // in order of arrival, complete ones
	gets    []domain.Digest
	cut     func(method string, d domain.Digest) int
	status  int // answer this instead, 0 for none
}

func newBlobServer(t testing.TB) *blobServer {
	t.Helper()
	s := &blobServer{objects: map[domain.Digest][]byte{}, cut: func(string, domain.Digest) int { return -1 }}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /blobs/missing", s.missing)
	mux.HandleFunc("PUT /blobs/{d}", s.put)
	mux.HandleFunc("GET /blobs/{d}", s.get)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *blobServer) client(t testing.TB) *HTTPBlobs {
	t.Helper()
	c := NewHTTPClient(nil)
	t.Cleanup(c.CloseIdleConnections)
	h, err := NewHTTPBlobs(s.URL, c, func() (string, error) { return "token", nil })
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (s *blobServer) refused(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("Authorization") != "Bearer token" {
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status == 0 {
		return false
	}
	w.WriteHeader(s.status)
	_, _ = io.WriteString(w, `{"detail":"the disk is full","next":"free some space"}`)
	return true
}

func (s *blobServer) missing(w http.ResponseWriter, r *http.Request) {
	if s.refused(w, r) {
		return
	}
	var q struct {
		Digests []domain.Digest `json:"digests"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	missing := []domain.Digest{}
	for _, d := range q.Digests {
		if s.objects[d] == nil {
			missing = append(missing, d)
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"missing": missing})
}

func (s *blobServer) put(w http.ResponseWriter, r *http.Request) {
	if s.refused(w, r) {
		return
	}
	d := domain.Digest(r.PathValue("d"))
	if n := s.cutAt(http.MethodPut, d); n >= 0 {
		_, _ = io.CopyN(io.Discard, r.Body, int64(n))
		panic(http.ErrAbortHandler)
	}
	data, err := io.ReadAll(r.Body)
	if err != nil || blob.Sum(data) != d {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[d] = data
	s.puts = append(s.puts, d)
	w.WriteHeader(http.StatusCreated)
}

func (s *blobServer) get(w http.ResponseWriter, r *http.Request) {
	if s.refused(w, r) {
		return
	}
	d := domain.Digest(r.PathValue("d"))
	s.mu.Lock()
	data := s.objects[d]
	s.gets = append(s.gets, d)
	s.mu.Unlock()
	if data == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	if n := s.cutAt(http.MethodGet, d); n >= 0 {
		_, _ = w.Write(data[:n])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(data)
}

func (s *blobServer) cutAt(method string, d domain.Digest) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut(method, d)
}

func (s *blobServer) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// store makes a store over the server whose pauses take no time.
func (s *blobServer) store(t testing.TB) *store {
	t.Helper()
	c, err := cache.Open(t.TempDir(), cache.Options{Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	st := newStore(c, s.client(t), sinceStart())
	st.up.pause = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	st.down.pause = st.up.pause
	return st
}

// write puts a blob of several parts into the store's cache.
func write(t testing.TB, s *store, size int) (domain.Digest, blob.Manifest) {
	t.Helper()
	w := s.writer(t.Context(), func(int64) {})
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i>>20 ^ i)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	id, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return id, w.Manifest()
}

// Uploads are cut at byte k, again and again: what is there stays there, the rest is sent, the manifest comes last.
func TestPushSurvivesCuts(t *testing.T) {
	for _, k := range []int{0, 70_000, blob.PartBytes - 1} {
		t.Run(strconv.Itoa(k), func(t *testing.T) {
			s := newBlobServer(t)
			st := s.store(t)
			id, m := write(t, st, blob.PartBytes+100)
			cuts := 0
			s.set(func() {
				s.cut = func(_ string, d domain.Digest) int {
					if d == m.Parts[0] && cuts < partTries-1 {
						cuts++
						return k
					}
					return -1
				}
			})
			var moved int64
			var mu sync.Mutex
			if err := st.push(t.Context(), id, func(n int64) { mu.Lock(); moved += n; mu.Unlock() }); err != nil {
				t.Fatal(err)
			}
			if cuts != partTries-1 || len(s.puts) != 3 || s.puts[2] != id {
				t.Errorf("%d cuts, stored %v, want 2 parts and then the manifest", cuts, s.puts)
			}
			if moved < m.Size {
				t.Errorf("moved %d bytes, the blob has %d", moved, m.Size)
			}
		})
	}
}

// A push that failed for good is begun again: it asks first and sends only what is missing.
func TestPushResumes(t *testing.T) {
	s := newBlobServer(t)
	st := s.store(t)
	id, m := write(t, st, blob.PartBytes+100)
	s.set(func() {
		s.cut = func(_ string, d domain.Digest) int {
			if d == id {
				return 10
			}
			return -1
		}
	})
	err := st.push(t.Context(), id, func(int64) {})
	var failed *transferFailure
	if !errors.As(err, &failed) || failed.local || domain.KindOf(err) != domain.KindUnavailable {
		t.Fatalf("cut for good: got %v", err)
	}
	s.set(func() {
		s.cut, s.puts = func(string, domain.Digest) int { return -1 }, nil
		delete(s.objects, m.Parts[0])
	})
	if err := st.push(t.Context(), id, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	if len(s.puts) != 2 || s.puts[0] != m.Parts[0] || s.puts[1] != id {
		t.Errorf("sent %v, want the one missing part and the manifest", s.puts)
	}
}

// Downloads are cut at byte k; several slots want the same parts and fetch them once.
func TestPullSurvivesCutsAndIsShared(t *testing.T) {
	s := newBlobServer(t)
	from := s.store(t)
	id, m := write(t, from, blob.PartBytes+100)
	if err := from.push(t.Context(), id, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	cuts := map[domain.Digest]int{}
	s.set(func() {
		s.cut = func(_ string, d domain.Digest) int {
			if cuts[d]++; cuts[d] == 1 {
				return 50
			}
			return -1
		}
	})
	to := s.store(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := to.pull(t.Context(), id, func(int64) {}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(s.gets) != 6 { // three objects, each cut once
		t.Errorf("%d requests for 3 objects that were each cut once", len(s.gets))
	}
	r, err := to.open(t.Context(), id, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, r)
	if err != nil || n != m.Size {
		t.Errorf("read %d of %d bytes: %v", n, m.Size, err)
	}
}

// Damage on this machine's disk is told from a failing link: the delta must be made again.
func TestPushOfDamagedBlobIsLocal(t *testing.T) {
	s := newBlobServer(t)
	st := s.store(t)
	err := st.push(t.Context(), blob.Sum([]byte("gone")), func(int64) {})
	if !isLocal(err) {
		t.Errorf("a blob that is not cached: got %v", err)
	}
}

func TestRefusalsKeepTheirKind(t *testing.T) {
	s := newBlobServer(t)
	h := s.client(t)
	for _, c := range []struct {
		status int
		want   domain.Kind
	}{{400, domain.KindInvalid}, {401, domain.KindDenied}, {403, domain.KindDenied}, {404, domain.KindNotFound}, {429, domain.KindUnavailable}, {500, domain.KindUnavailable}, {503, domain.KindUnavailable}} {
		s.set(func() { s.status = c.status })
		_, err := h.Get(t.Context(), blob.Sum(nil), nil)
		if domain.KindOf(err) != c.want || !strings.Contains(err.Error(), "the disk is full") || domain.NextOf(err) != "free some space" {
			t.Errorf("%d: got %s, %v", c.status, domain.KindOf(err), err)
		}
	}
}

func TestGetRefusesOtherBytes(t *testing.T) {
	s := newBlobServer(t)
	d := blob.Sum([]byte("right"))
	s.set(func() { s.objects[d] = []byte("wrong") })
	if _, err := s.client(t).Get(t.Context(), d, nil); domain.KindOf(err) != domain.KindIntegrity {
		t.Errorf("got %v", err)
	}
}

// A server that takes the request and then says nothing is given up; a caller that gives up gets its own error.
func TestStall(t *testing.T) {
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer srv.Close()
	defer close(release)
	h, err := NewHTTPBlobs(srv.URL, srv.Client(), func() (string, error) { return "token", nil })
	if err != nil {
		t.Fatal(err)
	}
	h.stall = 20 * time.Millisecond
	if err := h.Put(t.Context(), blob.Sum(nil), bytes.Repeat([]byte{1}, 100), nil); domain.KindOf(err) != domain.KindUnavailable || !strings.Contains(err.Error(), "nothing moved") {
		t.Errorf("stalled: got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Get(ctx, blob.Sum(nil), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

func TestNewHTTPBlobsRefuses(t *testing.T) {
	for _, base := range []string{"", "hub", "ftp://hub", "://"} {
		if _, err := NewHTTPBlobs(base, nil, nil); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%q: got %v", base, err)
		}
	}
}
