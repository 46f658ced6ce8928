package webhook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"tensorturn/broker"
	"tensorturn/broker/feed"
	"tensorturn/broker/memory"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
	render "tensorturn/projections/feed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// The example of the Standard Webhooks specification.
func TestSignatureOfTheSpecification(t *testing.T) {
	got, err := Sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if err != nil || got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("%s %v", got, err)
	}
}

func TestAddresses(t *testing.T) {
	for a, want := range map[string]bool{
		"93.184.216.34": true, "2606:2800:220:1::1": true, "127.0.0.1": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false,
		"169.254.169.254": false, "100.64.0.1": false, "0.0.0.0": false, "::": false, "::1": false, "fe80::1": false, "fd00::1": false, "ff02::1": false,
		"::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "64:ff9b::a00:1": false, "2002:7f00:1::": false, "224.0.0.1": false, "255.255.255.255": false,
	} {
		if got := public(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s is public: %v", a, got)
		}
	}
}

func TestURLs(t *testing.T) {
	for u, want := range map[string]bool{
		"https://example.org/hook": true, "http://example.org": false, "https://127.0.0.1/x": false, "https://[::1]/": false, "https://user:pw@example.org": false,
		"ftp://example.org": false, "": false, "https://": false, "https://example.org/" + strings.Repeat("x", maxURL): false,
	} {
		if err := checkURL(u, false); (err == nil) != want {
			t.Errorf("%.60s: %v", u, err)
		}
	}
	if err := checkURL("http://127.0.0.1:8080/", true); err != nil {
		t.Error(err)
	}
}

// receiver is another system. answer gives the status for an event.
type receiver struct {
	t      *testing.T
	server *httptest.Server
	secret func() string

	mu     sync.Mutex
	answer func(id string) int
	got    []string // ids of events taken, in order
	calls  int
	moved  chan struct{}
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{t: t, moved: make(chan struct{}), answer: func(string) int { return 204 }}
	r.server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.server.Close)
	return r
}

func (r *receiver) serve(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		r.t.Error(err)
	}
	id, at := q.Header.Get("webhook-id"), q.Header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > time.Minute {
		r.t.Errorf("timestamp %q", at)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if want, err := Sign(r.secret(), id, time.Unix(seconds, 0), body); err != nil || q.Header.Get("webhook-signature") != want {
		r.t.Errorf("signature %q of %s, want %q, %v", q.Header.Get("webhook-signature"), id, want, err)
	}
	if !bytes.Contains(body, []byte(`"id":"`+id+`"`)) || q.Header.Get("Content-Type") != render.ContentType {
		r.t.Errorf("body %.200s, %s", body, q.Header.Get("Content-Type"))
	}
	r.calls++
	code := r.answer(id)
	if code < 300 {
		r.got = append(r.got, id)
	}
	close(r.moved)
	r.moved = make(chan struct{})
	w.WriteHeader(code)
}

// await waits until yes, asked after each call.
func (r *receiver) await(what string, yes func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		r.mu.Lock()
		ok, moved := yes(), r.moved
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			r.t.Fatalf("waited in vain for %s; got %v", what, r.got)
		}
	}
}

func (r *receiver) set(f func(string) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// bed is a log with a source and hooks on it.
type bed struct {
	t   *testing.T
	c   *broker.Committer
	src *feed.Source
	dir string
	n   int
	*Hooks
}

func newBed(t *testing.T) *bed {
	t.Helper()
	reg, log := event.NewRegistry(), memory.NewLog(nil)
	run.Register(reg)
	b := &bed{t: t, c: broker.NewCommitter(log, reg), src: feed.NewSource(log, reg, render.NewFormat(reg, "h")), dir: t.TempDir()}
	b.must(b.c.Open(t.Context(), func(event.Envelope) error { return nil }))
	b.src.GoLive()
	b.begin()
	t.Cleanup(func() { b.Stop() })
	return b
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// begin is the start of a hub.
func (b *bed) begin() {
	b.Hooks = New(Config{Dir: b.dir, Source: b.src, Private: true, Now: time.Now, Logger: zerolog.Nop(), RetryFirst: time.Millisecond, RetryMost: 10 * time.Millisecond})
	b.must(b.Start())
}

func (b *bed) happen(run_ string) string {
	b.t.Helper()
	b.n++
	es, err := b.c.Commit(b.t.Context(), time.Unix(1e9, 0), []broker.Group{{Command: domain.CommandID(fmt.Sprint("c-", b.n)), Actor: "hub",
		Events: []event.Event{{Kind: event.KindRun, ID: run_, Data: &run.Resumed{}}}}})
	b.must(err)
	b.src.Note(es)
	return es[0].ID
}

func (b *bed) hook(r *receiver, s Spec) Hook {
	b.t.Helper()
	s.URL = r.server.URL
	if s.ID == "" {
		s.ID = "w-1"
	}
	k, err := b.Create(s)
	b.must(err)
	r.secret = func() string { return k.Secret }
	return k
}

// TestOutageLosesNothing: the receiver fails, the hub restarts, and every event comes in order.
func TestOutageLosesNothing(t *testing.T) {
	b, r := newBed(t), newReceiver(t)
	r.set(func(string) int { return 503 })
	b.hook(r, Spec{})
	var want []string
	for range 5 {
		want = append(want, b.happen("r-1"))
	}
	r.await("attempts", func() bool { return r.calls > 3 })
	b.Stop()
	want = append(want, b.happen("r-1"))
	b.begin()
	r.set(func(string) int { return 200 })
	want = append(want, b.happen("r-1"))
	r.await("all events", func() bool { return len(r.got) >= len(want) })
	if got := strings.Join(r.got, " "); got != strings.Join(want, " ") {
		t.Errorf("got %s\nwant %s", got, strings.Join(want, " "))
	}
	if k := b.List()[0]; k.Secret != "" || len(k.Dead) > 0 {
		t.Errorf("%+v", k)
	}
}

// TestRefusedEventsAreKeptAside: an event that the receiver refuses does not hold up the others, and can be sent again.
func TestRefusedEventsAreKeptAside(t *testing.T) {
	b, r := newBed(t), newReceiver(t)
	const bad = "c-1.0"
	r.set(func(id string) int {
		if id == bad {
			return 400
		}
		return 200
	})
	b.hook(r, Spec{})
	b.happen("r-1")
	good := b.happen("r-1")
	r.await("the good one", func() bool { return len(r.got) > 0 && r.got[len(r.got)-1] == good })
	dead := b.List()[0].Dead
	if len(dead) != 1 || dead[0].ID != bad || !strings.HasSuffix(dead[0].Why, "answers 400") {
		t.Fatalf("dead: %+v", dead)
	}
	if r.calls != refusals+1 {
		t.Errorf("%d calls, want %d", r.calls, refusals+1)
	}
	b.Stop()
	b.begin() // the list outlives the process
	r.set(func(string) int { return 200 })
	b.must(b.Redeliver("w-1"))
	r.await("the bad one", func() bool { return len(r.got) > 1 && r.got[len(r.got)-1] == bad })
	after := b.happen("r-1")
	r.await("what follows", func() bool { return r.got[len(r.got)-1] == after })
	if dead := b.List()[0].Dead; len(dead) != 0 {
		t.Errorf("still dead: %+v", dead)
	}
	if domain.KindOf(b.Redeliver("w-9")) != domain.KindNotFound {
		t.Error("a webhook that is not there")
	}
}

func TestHooksSendWhatTheyAreFor(t *testing.T) {
	b, r := newBed(t), newReceiver(t)
	b.happen("r-2")
	b.hook(r, Spec{Run: "r-2", After: 1})
	b.happen("r-1")
	want := b.happen("r-2")
	r.await("the event", func() bool { return len(r.got) == 1 })
	if r.got[0] != want {
		t.Errorf("got %v, want %s", r.got, want)
	}
	b.must(b.Remove("w-1"))
	if len(b.List()) != 0 || domain.KindOf(b.Remove("w-1")) != domain.KindNotFound {
		t.Error("it is still there")
	}
}

func TestGoneStopsAHook(t *testing.T) {
	b, r := newBed(t), newReceiver(t)
	r.set(func(string) int { return 410 })
	b.hook(r, Spec{})
	b.happen("r-1")
	r.await("an attempt", func() bool { return r.calls == 1 })
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for b.List()[0].Stopped == "" {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("it goes on")
		}
	}
}

// TestPrivateAddressIsRefusedWhenDialled: the name is fine, what it leads to is not.
func TestPrivateAddressIsRefusedWhenDialled(t *testing.T) {
	called := make(chan struct{}, 1)
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called <- struct{}{} }))
	defer s.Close()
	url := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	if err := checkURL(url, false); err != nil {
		t.Fatalf("the URL itself is refused: %v", err)
	}
	c := newClient(false)
	defer c.CloseIdleConnections()
	_, err := c.Get(url)
	if domain.KindOf(err) != domain.KindDenied || len(called) > 0 {
		t.Errorf("%v, called %d", err, len(called))
	}
	open := newClient(true)
	defer open.CloseIdleConnections()
	if _, err := open.Get(url); domain.KindOf(err) == domain.KindDenied {
		t.Errorf("with private addresses allowed: %v", err)
	}
}

// TestRedirectIsNoWayIn: a receiver cannot send the hub somewhere else.
func TestRedirectIsNoWayIn(t *testing.T) {
	b, r := newBed(t), newReceiver(t)
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer inner.Close()
	first := true
	r.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if first {
			first = false
			http.Redirect(w, q, inner.URL, http.StatusTemporaryRedirect)
			return
		}
		r.serve(w, q)
	})
	b.hook(r, Spec{})
	b.happen("r-1")
	r.await("the event", func() bool { return len(r.got) == 1 })
}

func TestHooksAreBounded(t *testing.T) {
	b := newBed(t)
	for i := range MaxHooks {
		_, err := b.Create(Spec{ID: fmt.Sprint("w-", i), URL: "https://example.org/"})
		b.must(err)
	}
	if _, err := b.Create(Spec{ID: "w-more", URL: "https://example.org/"}); domain.KindOf(err) != domain.KindConflict {
		t.Errorf("one more: %v", err)
	}
}
