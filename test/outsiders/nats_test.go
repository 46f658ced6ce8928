package outsiders

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"tensorturn/projections/runs"
	"tensorturn/test/kit"
)

// operator gives what the operator's file holds.
func operator(t *testing.T, p *kit.Pool) (*http.Client, string) {
	t.Helper()
	b, err := os.ReadFile(p.Context())
	var c struct{ Key, CA string }
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots(t, []byte(c.CA)), MinVersion: tls.VersionTLS13}, DisableKeepAlives: true}
	return &http.Client{Transport: tr}, c.Key
}

func roots(t *testing.T, pem []byte) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatal("no CA")
	}
	return pool
}

// reader is nats.go with an observer's credential, as an outsider writes it.
type reader struct {
	nc  *nats.Conn
	con jetstream.ConsumeContext

	mu  sync.Mutex
	got []cloudEvent
}

func (o observer) read(t *testing.T) *reader {
	t.Helper()
	r := &reader{}
	var err error
	r.nc, err = nats.Connect(o.URL, nats.UserCredentials(filepath.Join(o.Dir, "observer.creds")), nats.RootCAs(filepath.Join(o.Dir, "ca.pem")),
		nats.MaxReconnects(-1), nats.ReconnectWait(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.nc.Close)
	js, err := jetstream.NewWithAPIPrefix(r.nc, o.APIPrefix)
	if err != nil {
		t.Fatal(err)
	}
	c, err := js.Consumer(t.Context(), o.Stream, o.Consumer)
	if err != nil {
		t.Fatal(err)
	}
	r.con, err = c.Consume(func(m jetstream.Msg) {
		r.mu.Lock()
		e := parseEvent(t, m.Data())
		if meta, err := m.Metadata(); err == nil {
			e.place = meta.Sequence.Stream
		}
		r.got = append(r.got, e)
		r.mu.Unlock()
		if err := m.Ack(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			t.Logf("acknowledge: %v", err) // it comes again
		}
	}, jetstream.ConsumeErrHandler(func(jetstream.ConsumeContext, error) {})) // an outage heals by itself
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// await waits until as many different events were read.
func (r *reader) await(t *testing.T, n int) []cloudEvent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		r.mu.Lock()
		ids := map[string]bool{}
		for _, e := range r.got {
			ids[e.ID] = true
		}
		got := append([]cloudEvent(nil), r.got...)
		r.mu.Unlock()
		if len(ids) >= n {
			return got
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return got
		}
	}
}

// TestObserversMissNothing kills and stops the hub during a run while two observers read it. Each has every event, those
// of its run alone where it is bound to one; whoever comes later reads each event once.
func TestObserversMissNothing(t *testing.T) {
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	all := newObserver(t, p, "--name", "all")
	everything := all.read(t)
	p.StartAgent("a", "--throttle", "0.004")
	other := p.Submit(spec(t, 1))
	p.AwaitEnd(other)
	id := p.Submit(spec(t, 12))
	one := newObserver(t, p, "--name", "one", "--run", string(id))
	mine := one.read(t)
	for i, at := range []int{20, 60, 90, 110} {
		p.AwaitRun(id, "progress", func(r runs.Run) bool {
			n := 0
			for _, s := range r.Slots {
				n += s.Chunks
			}
			return n >= at
		})
		if i%2 == 0 {
			p.Hub.Kill()
		} else if code := p.Hub.Stop(kit.Patience); code != 0 {
			t.Errorf("the hub ended with %d", code)
		}
		p.StartHub()
	}
	p.AwaitEnd(id)
	want, wantMine := truth(t, p), truth(t, p, "--run", string(id))
	if len(wantMine) < 100 || len(want) < len(wantMine)+20 {
		t.Fatalf("%d events, %d of them of the run: too few to show anything", len(want), len(wantMine))
	}
	compare(t, "observer of all", everything.await(t, len(want)), want)
	compare(t, "observer of one run", mine.await(t, len(wantMine)), wantMine)
	for i, e := range mine.await(t, len(wantMine)) {
		if e.Subject != "runs/"+string(id) {
			t.Fatalf("event %d is of %s", i, e.Subject)
		}
	}
	readsEachOnce(t, p, want)
	validate(t, p)
}

// readsEachOnce reads from the tenth event on with a new observer: each has one place in the feed, and all grow together.
func readsEachOnce(t *testing.T, p *kit.Pool, want []cloudEvent) {
	t.Helper()
	const from = "00000000000000000010"
	for len(want) > 0 && want[0].Sequence < from {
		want = want[1:]
	}
	places := map[uint64]string{}
	for _, e := range newObserver(t, p, "--from", "10").read(t).await(t, len(want)) {
		if was, again := places[e.place]; again && was != e.ID {
			t.Errorf("place %d has %s and %s", e.place, was, e.ID)
		}
		places[e.place] = e.ID
	}
	var last uint64
	at := map[string]uint64{}
	for place, id := range places {
		if other, double := at[id]; double {
			t.Errorf("the feed has %s at %d and %d", id, place, other)
		}
		at[id] = place
	}
	for _, e := range want {
		if at[e.ID] <= last {
			t.Fatalf("%s (%s) is at %d, behind %d", e.ID, e.Sequence, at[e.ID], last)
		}
		last = at[e.ID]
	}
	if len(places) != len(want) {
		t.Errorf("it read %d events, want %d", len(places), len(want))
	}
}
