package gateway_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
	"tensorturn/domain"
)

// echo is a loopback server that upgrades every request, tells what headers it saw, and echoes bytes.
func echo(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n%s for=%q real=%q host=%s\n",
			r.URL.Path, r.Header.Values("X-Forwarded-For"), r.Header.Values("X-Real-Ip"), r.Host)
		rw.Flush()
		io.Copy(c, rw)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// upgrade opens a WebSocket as an agent would, and gives the first line behind the answer's head.
func (r *rig) upgrade(path string) (*tls.Conn, *bufio.Reader, *http.Response) {
	r.t.Helper()
	trust, err := identity.TrustTLS(r.keys.CA())
	r.must(err)
	c, err := tls.Dial("tcp", r.addr, trust)
	r.must(err)
	r.t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: hub\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Forwarded-For: 6.6.6.6\r\nX-Real-Ip: 6.6.6.6\r\n\r\n", path)
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	r.must(err)
	return c, in, resp
}

func TestWebsocketPassesThrough(t *testing.T) {
	back := echo(t)
	r := newRig(t, func(c *gateway.Config) { c.Websocket = back })
	for _, path := range []string{"/nats", "/nats/leafnode"} {
		c, in, resp := r.upgrade(path)
		if resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%s: %s", path, resp.Status)
		}
		saw, err := in.ReadString('\n')
		if want := fmt.Sprintf("%s for=[\"127.0.0.1\"] real=[] host=%s\n", path, back); err != nil || saw != want {
			t.Errorf("%v %q, want %q", err, saw, want)
		}
		fmt.Fprint(c, "PING\n")
		if got, err := in.ReadString('\n'); err != nil || got != "PING\n" {
			t.Errorf("%v %q", err, got)
		}
	}
}

func TestWebsocketRefuses(t *testing.T) {
	r := newRig(t, nil) // nothing listens behind it
	r.call("GET", "/nats", "", nil).refused(t, 400, domain.KindInvalid, "no upgrade")
	_, _, resp := r.upgrade("/nats")
	b, err := io.ReadAll(resp.Body)
	r.must(err)
	answer{resp.StatusCode, resp.Header, b}.refused(t, 503, domain.KindUnavailable, "did not answer")
}

// Places are limited by address, and come free when a WebSocket closes.
func TestWebsocketsAreBounded(t *testing.T) {
	back := echo(t)
	r := newRig(t, func(c *gateway.Config) { c.Websocket = back }, func(g *gateway.Gateway) { gateway.LimitWebsockets(g, 10, 2) })
	first, in, _ := r.upgrade("/nats")
	_, _, second := r.upgrade("/nats/x")
	_, _, third := r.upgrade("/nats")
	b, err := io.ReadAll(third.Body)
	r.must(err)
	answer{third.StatusCode, third.Header, b}.refused(t, 503, domain.KindUnavailable, "too many connections")
	if second.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("second: %s", second.Status)
	}
	first.CloseWrite()
	io.Copy(io.Discard, in) // the end comes after the hub's side is closed
	gateway.WaitWebsockets(r.front, 1)
	if _, _, again := r.upgrade("/nats"); again.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("after one has left: %s", again.Status)
	}
}

// Stop cuts WebSockets and waits for them; nothing is left running.
func TestStopEndsWebsockets(t *testing.T) {
	back := echo(t)
	r := newRig(t, func(c *gateway.Config) { c.Websocket = back })
	_, in, _ := r.upgrade("/nats")
	_, err := in.ReadString('\n')
	r.must(err)
	ended := make(chan error, 1)
	go func() {
		_, err := in.ReadString('\n')
		ended <- err
	}()
	began := time.Now()
	r.must(r.front.Stop())
	if err := <-ended; err == nil {
		t.Error("the WebSocket outlived the front")
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("stopping took %s", took)
	}
	if c, err := net.Dial("tcp", r.addr); err == nil {
		c.Close()
		t.Error("the port is still open")
	}
}

func TestStopWithoutStart(t *testing.T) {
	if err := gateway.New(gateway.Config{Views: gateway.NewViews(), Version: "v1"}).Stop(); err != nil {
		t.Error(err)
	}
}

// A client that dribbles its header is cut; others are served meanwhile.
func TestSlowHeaderIsCut(t *testing.T) {
	r := newRig(t, nil, func(g *gateway.Gateway) { gateway.HeaderTimeout(g, 200*time.Millisecond) })
	trust, err := identity.TrustTLS(r.keys.CA())
	r.must(err)
	c, err := tls.Dial("tcp", r.addr, trust)
	r.must(err)
	defer c.Close()
	fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: h")
	if a := r.call("GET", "/healthz", "", nil); a.status != 200 {
		t.Errorf("another client: %d", a.status)
	}
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadAll(c); err != nil {
		t.Errorf("the slow client was not cut: %v", err)
	}
}
