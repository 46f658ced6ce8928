package gateway_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker/gateway"
	"tensorturn/broker/health"
	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/domain/blob"
)

// What is refused when, to whom, and what /healthz says.
func TestRoomAtTheFront(t *testing.T) {
	r := newRig(t, nil)
	k, _ := r.enrol("a")
	machine := func() string { return r.proof(k, identity.AudienceBlobs, time.Now()) }
	put := func(key, text string) int {
		return r.call("PUT", "/blobs/"+string(blob.Sum([]byte(text))), key, text).status
	}
	for i, c := range []struct {
		state             health.State
		healthz           int
		operator, machine int
	}{
		{health.Ready, 200, 201, 201}, {health.Low, 200, 503, 201}, {health.Full, 503, 503, 503}, {health.Ready, 200, 201, 201},
	} {
		r.health.state.Store(c.state)
		if a := r.call("GET", "/healthz", "", nil); a.status != c.healthz || string(a.body) != string(c.state)+"\n" {
			t.Errorf("%s: healthz says %d %q", c.state, a.status, a.body)
		}
		text := strings.Repeat("x", i+1)
		if got := put(r.key, "operator"+text); got != c.operator {
			t.Errorf("%s: the operator's part: %d", c.state, got)
		}
		if got := put(machine(), "machine"+text); got != c.machine {
			t.Errorf("%s: the machine's part: %d", c.state, got)
		}
		a := r.call("POST", "/api/v1/runs", r.key, gateway.SubmitRun{ID: "r-1"})
		if refused := a.status == http.StatusServiceUnavailable; refused != (c.operator == 503) {
			t.Errorf("%s: a submission: %d %s", c.state, a.status, a.body)
		}
		var s gateway.HubStatus
		r.api("GET", "/api/v1/hub", nil, &s)
		if s.State != c.state || s.Version == "" {
			t.Errorf("%s: the hub says %+v", c.state, s)
		}
	}
	r.health.state.Store(health.Full)
	a := r.call("PUT", "/blobs/"+string(blob.Sum([]byte("late"))), machine(), "late")
	if a.refused(t, 503, domain.KindUnavailable, "the store is full"); a.header.Get("Retry-After") == "" {
		t.Error("nobody is told when to come again")
	}
}

// The port is open before the log is read: health is told at once, and everybody else waits and is served.
func TestDoorBeforeTheHubIsReady(t *testing.T) {
	door := gateway.NewDoor(zerolog.Nop())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(c *gateway.Config) { c.Door = nil })
	door.Start(l, &tls.Config{Certificates: []tls.Certificate{r.keys.ServerCertificate()}})
	t.Cleanup(func() { door.Stop() })
	trust, err := identity.TrustTLS(r.keys.CA())
	r.must(err)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: trust}}
	t.Cleanup(c.CloseIdleConnections)
	get := func(path string) (int, string) {
		resp, err := c.Get("https://" + l.Addr().String() + path)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer resp.Body.Close()
		var b bytes.Buffer
		b.ReadFrom(resp.Body)
		return resp.StatusCode, b.String()
	}
	if code, body := get("/healthz"); code != 503 || body != "starting\n" {
		t.Errorf("healthz before the hub is ready: %d %q", code, body)
	}
	var waiting sync.WaitGroup
	for range 8 {
		waiting.Go(func() {
			if code, body := get("/install/ca.pem"); code != 200 || body != string(r.keys.CA()) {
				t.Errorf("a request that waited: %d %q", code, body)
			}
		})
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for gateway.Waiting(door) < 8 {
		<-again.C
	}
	front := gateway.New(gateway.Config{Door: door, CA: r.keys.CA(), Health: &r.health, Hub: r.service, Views: gateway.NewViews(), Websocket: "127.0.0.1:1",
		PublicURL: "https://x", Now: time.Now, Operator: func(string) bool { return false }, Logger: zerolog.Nop()})
	front.Open()
	waiting.Wait()
	if code, body := get("/healthz"); code != 200 || body != "ready\n" {
		t.Errorf("healthz afterwards: %d %q", code, body)
	}
	if err := front.Stop(); err != nil {
		t.Error(err)
	}
}

// A door that is closed before the hub was ready lets nobody hang.
func TestDoorThatNeverOpens(t *testing.T) {
	door := gateway.NewDoor(zerolog.Nop())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, nil)
	door.Start(l, &tls.Config{Certificates: []tls.Certificate{r.keys.ServerCertificate()}})
	trust, err := identity.TrustTLS(r.keys.CA())
	r.must(err)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: trust}}
	ended := make(chan error, 1)
	go func() {
		req, _ := http.NewRequestWithContext(context.Background(), "GET", "https://"+l.Addr().String()+"/install", nil)
		resp, err := c.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		ended <- err
	}()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for gateway.Waiting(door) < 1 {
		<-again.C
	}
	if err := door.Stop(); err != nil {
		t.Error(err)
	}
	<-ended
	c.CloseIdleConnections()
}
