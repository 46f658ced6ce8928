package gateway_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tensorturn/agent"
	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/machine"
	"tensorturn/projections/fleet"
)

func TestLinkMovesBytesThatNobodyKeeps(t *testing.T) {
	r := newRig(t, nil)
	key, _ := r.enrol("box")
	blobs, err := agent.NewHTTPBlobs("https://"+r.addr, r.http, func() (string, error) { return r.proof(key, identity.AudienceBlobs, time.Now()), nil })
	r.must(err)
	l := agent.NewLink(blobs)
	r.must(l.Trip(t.Context()))
	for _, n := range []int{1, 64<<10 + 1, domain.MaxPartBytes} {
		r.must(l.Send(t.Context(), n))
		r.must(l.Fetch(t.Context(), n))
	}
	proof := r.proof(key, identity.AudienceBlobs, time.Now())
	for _, ask := range []string{"", "?bytes=-1", "?bytes=x", "?bytes=8388609"} {
		if a := r.call(http.MethodGet, "/link"+ask, proof, ""); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d", ask, a.status)
		}
	}
	if a := r.call(http.MethodPut, "/link", proof, strings.Repeat("x", domain.MaxPartBytes+1)); a.status != http.StatusBadRequest {
		t.Errorf("too many bytes: %d", a.status)
	}
}

// from is a client at another address of this machine.
func (r *rig) from(ip string) *http.Client {
	way := r.http.Transport.(*http.Transport).Clone()
	way.DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).DialContext
	r.t.Cleanup(way.CloseIdleConnections)
	return &http.Client{Transport: way}
}

// Two machines measure at a time, of one address one; others are told to come again, and may when one has ended.
func TestFewMeasureAtATime(t *testing.T) {
	r := newRig(t, nil)
	key, _ := r.enrol("box")
	proof := r.proof(key, identity.AudienceBlobs, time.Now())
	ask := func(c *http.Client, method string, body io.Reader, n int64) (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), method, "https://"+r.addr+"/link", body)
		if err != nil {
			return 0, err
		}
		req.ContentLength = n
		req.Header.Set("Authorization", "Bearer "+proof)
		resp, err := c.Do(req)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	one, two, three := r.from("127.0.0.1"), r.from("127.0.0.2"), r.from("127.0.0.3")
	measure := func(c *http.Client) (end func()) {
		from, to := io.Pipe()
		over := make(chan error, 1)
		go func() {
			_, err := ask(c, http.MethodPut, from, 2)
			over <- err
		}()
		_, err := to.Write([]byte("a"))
		r.must(err)
		return func() { to.Write([]byte("b")); to.Close(); r.must(<-over) }
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	until := func(c *http.Client, want int) { // the requests are on their way
		t.Helper()
		for {
			got, err := ask(c, http.MethodHead, nil, 0)
			r.must(err)
			if got == want {
				return
			}
			r.must(ctx.Err())
		}
	}
	endOne := measure(one)
	until(one, http.StatusServiceUnavailable)
	until(two, http.StatusOK) // one machine keeps nobody else from it
	endTwo := measure(two)
	until(three, http.StatusServiceUnavailable)
	endOne()
	until(three, http.StatusOK)
	until(one, http.StatusOK)
	endTwo()
}

// Who sends or takes nothing for a while gives its place to others.
func TestMeasuringEnds(t *testing.T) {
	r := newRig(t, nil)
	key, _ := r.enrol("box")
	proof := r.proof(key, identity.AudienceBlobs, time.Now())
	for _, method := range []string{http.MethodHead, http.MethodPut} {
		began, w := time.Now(), &limited{ResponseRecorder: httptest.NewRecorder()}
		req := httptest.NewRequestWithContext(t.Context(), method, "/link", nil)
		req.Header.Set("Authorization", "Bearer "+proof)
		r.front.Handler().ServeHTTP(w, req)
		for what, end := range map[string]time.Time{"reading": w.read, "writing": w.write} {
			if left := end.Sub(began); w.Code != http.StatusOK || left < 9*time.Second || left > 15*time.Second {
				t.Errorf("%s: %d, %s ends after %s", method, w.Code, what, left)
			}
		}
	}
}

// limited keeps the ends that were set for a request.
type limited struct {
	*httptest.ResponseRecorder
	read, write time.Time
}

func (l *limited) SetReadDeadline(t time.Time) error  { l.read = t; return nil }
func (l *limited) SetWriteDeadline(t time.Time) error { l.write = t; return nil }

func TestAMachineIsMeasuredOnDemand(t *testing.T) {
	r := newRig(t, nil)
	r.enrol("box")
	var m fleet.Machine
	r.api(http.MethodPost, "/api/v1/machines/box/bench", gateway.BenchRequest{Reason: "new cooler", Anew: true}, &m)
	if m.BenchWanted != 0 || m.Bench != nil {
		t.Errorf("a machine that was never online: %+v", m)
	}
	all := r.stream("")
	newest := all[len(all)-1]
	e, err := event.Decode(registry(), newest.Seq, newest.Data)
	r.must(err)
	if asked, ok := e.Data.(*machine.BenchAsked); !ok || !asked.Anew || asked.Number != 2 || asked.Reason != "new cooler" || e.Actor != "operator" {
		t.Errorf("%+v", e)
	}
}

// Why a wanted benchmark is not taken yet is told in the machine's own words, and no longer once none is wanted.
func TestWhyAMachineIsNotMeasured(t *testing.T) {
	said := &wire.Telemetry{Unmeasured: "other programs use 93 % of the CPU"}
	r := newRig(t, func(c *gateway.Config) { c.Agents = telling{c.Agents, said} })
	_, id := r.enrol("box")
	sync := func(counter uint64, b *wire.Bench) (m fleet.Machine) {
		t.Helper()
		_, err := r.service.Sync(t.Context(), id, wire.SyncRequest{Version: wire.Version, Incarnation: "first", Counter: counter, Slots: make([]wire.SlotReport, 1), Bench: b})
		r.must(err)
		r.api(http.MethodGet, "/api/v1/machines/box", nil, &m)
		return m
	}
	if m := sync(1, nil); m.BenchWanted != 1 || m.Unmeasured != said.Unmeasured {
		t.Errorf("waiting: benchmark %d, %q", m.BenchWanted, m.Unmeasured)
	}
	score := machine.Score{Devices: []machine.DeviceScore{{Name: "a cpu"}}, Seconds: 1}
	if m := sync(2, &wire.Bench{Number: 1, Score: score}); m.BenchWanted != 0 || m.Unmeasured != "" {
		t.Errorf("measured: benchmark %d, %q", m.BenchWanted, m.Unmeasured)
	}
}
