package embedded

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"tensorturn/test/proxy"
)

// echo is a hub behind a proxy: it says what it hears.
func echo(string) (net.Conn, error) {
	here, there := net.Pipe()
	go func() { _, _ = io.Copy(there, there); _ = there.Close() }() // ends with the proxy's side
	return here, nil
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
	o := proxy.New(t, echo)
	way, err := openTunnel(o.URL, "hub.tensorturn.test:7443")
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
	if asked := o.Asked(); len(asked) != 0 {
		t.Fatalf("the proxy was asked for strangers: %v", asked)
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
	if asked := o.Asked(); len(asked) != 1 || asked[0] != (proxy.Asked{Host: "hub.tensorturn.test:7443", Authorization: "Basic dXNlcjpwQHNzIHdvcmQ=", Status: 200}) {
		t.Errorf("asked for %v", asked)
	}
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
