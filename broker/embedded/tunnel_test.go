package embedded

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"
)

// office is a proxy that speaks as the hub itself behind its tunnel: it echoes. It notes whom it was asked for.
type office struct {
	url   *url.URL
	mu    sync.Mutex
	asked []string
}

func newOffice(t *testing.T) *office {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &office{url: &url.URL{Scheme: "http", Host: l.Addr().String(), User: url.UserPassword("u", "p@ss")}}
	var work sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); work.Wait() })
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				in := bufio.NewReader(c)
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				o.mu.Lock()
				o.asked = append(o.asked, r.Host+" "+r.Header.Get("Proxy-Authorization"))
				o.mu.Unlock()
				io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
				io.Copy(c, in)
			})
		}
	})
	return o
}

// connect asks the tunnel as a leafnode does.
func connect(t *testing.T, way *tunnel, method, password string) (net.Conn, int) {
	t.Helper()
	c, err := net.Dial("tcp", way.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	r := &http.Request{Method: method, URL: &url.URL{Opaque: placeholder + ":7443"}, Host: placeholder + ":7443", Header: http.Header{}}
	if method != http.MethodConnect {
		r.URL = &url.URL{Scheme: "http", Host: r.Host, Path: "/"}
	}
	as := &http.Request{Header: http.Header{}}
	as.SetBasicAuth(tunnelUser, password)
	r.Header.Set("Proxy-Authorization", as.Header.Get("Authorization"))
	if err := r.Write(c); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), r)
	if err != nil {
		t.Fatal(err)
	}
	return c, resp.StatusCode
}

// The tunnel asks the real proxy for the hub by name, with its password, for who knows the tunnel's own; stop ends it all.
func TestTunnel(t *testing.T) {
	o := newOffice(t)
	way, err := openTunnel(o.url, "hub.tensorturn.test:7443")
	if err != nil {
		t.Fatal(err)
	}
	defer way.stop()
	for _, c := range []struct {
		method, password string
		want             int
	}{{"CONNECT", "guessed", 407}, {"CONNECT", "", 407}, {"GET", way.password, 405}} {
		if _, got := connect(t, way, c.method, c.password); got != c.want {
			t.Errorf("%s with %q: %d, want %d", c.method, c.password, got, c.want)
		}
	}
	if len(o.asked) != 0 {
		t.Fatalf("the proxy was asked for strangers: %v", o.asked)
	}
	c, status := connect(t, way, "CONNECT", way.password)
	if status != http.StatusOK {
		t.Fatal(status)
	}
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	back := make([]byte, 5)
	if _, err := io.ReadFull(c, back); err != nil || string(back) != "hello" {
		t.Fatalf("%q %v", back, err)
	}
	o.mu.Lock()
	if len(o.asked) != 1 || o.asked[0] != "hub.tensorturn.test:7443 Basic dTpwQHNz" {
		t.Errorf("asked for %v", o.asked)
	}
	o.mu.Unlock()
	way.stop() // returns although a tunnel is open
	if n, err := c.Read(back); err == nil {
		t.Errorf("%d bytes from a tunnel that was stopped", n)
	}
	(*tunnel)(nil).stop()
}

// A proxy that cannot be reached is a refusal with its reason.
func TestTunnelWithoutProxy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	way, err := openTunnel(&url.URL{Scheme: "http", Host: l.Addr().String()}, "hub:7443")
	if err != nil {
		t.Fatal(err)
	}
	defer way.stop()
	if _, status := connect(t, way, "CONNECT", way.password); status != http.StatusBadGateway {
		t.Errorf("status %d", status)
	}
}
