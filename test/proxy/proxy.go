// Package proxy is an HTTP proxy for tests, as an office has one: it opens tunnels by CONNECT for who knows its password, and
// remembers what it was asked. It is written with the standard library alone, so that the tests of every package may use it.
package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"testing"
)

// The proxy's user. The password has what must be escaped in a URL.
const (
	User     = "user"
	Password = "p@ss word"
)

// Refusal is a dialler's error that gives the status to refuse with; any other error is 502.
type Refusal int

func (r Refusal) Error() string { return "refused with status " + strconv.Itoa(int(r)) }

// Asked is one request.
type Asked struct {
	Host, Authorization string
	Status              int // that it was answered with
}

// Proxy is one. It ends with its test, and ends what is open then.
type Proxy struct {
	URL  *url.URL // with user and password
	dial func(host string) (net.Conn, error)

	mu    sync.Mutex
	asked []Asked
	up    int64
	open  map[net.Conn]bool // nil when it has ended
}

// New starts a proxy whose tunnels lead where dial leads.
func New(t testing.TB, dial func(host string) (net.Conn, error)) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{URL: &url.URL{Scheme: "http", Host: l.Addr().String(), User: url.UserPassword(User, Password)}, dial: dial, open: map[net.Conn]bool{}}
	var work sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); p.end(); work.Wait() })
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { p.serve(c) })
		}
	})
	return p
}

// Asked lists the requests, oldest first.
func (p *Proxy) Asked() []Asked {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Asked(nil), p.asked...)
}

// Counts gives how many tunnels were opened and refused.
func (p *Proxy) Counts() (opened, refused int) {
	for _, a := range p.Asked() {
		if a.Status == http.StatusOK {
			opened++
		} else {
			refused++
		}
	}
	return opened, refused
}

// Up is how many bytes went from the clients through tunnels that have ended on that side.
func (p *Proxy) Up() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.up
}

// keep notes a connection to end with the proxy, unless it has ended.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open != nil {
		p.open[c] = true
	}
	return p.open != nil
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
	_ = c.Close()
}

func (p *Proxy) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		_ = c.Close()
	}
	p.open = nil
}

func (p *Proxy) serve(c net.Conn) {
	defer p.drop(c)
	in := bufio.NewReader(c)
	if !p.keep(c) {
		return
	}
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	to, status := p.way(r)
	p.mu.Lock()
	p.asked = append(p.asked, Asked{Host: r.Host, Authorization: r.Header.Get("Proxy-Authorization"), Status: status})
	p.mu.Unlock()
	if to == nil {
		_ = (&http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1}).Write(c)
		return
	}
	defer p.drop(to)
	if err := (&http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1}).Write(c); err != nil || !p.keep(to) {
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() {
		n, _ := io.Copy(to, in)
		p.mu.Lock()
		p.up += n
		p.mu.Unlock()
		closeWrite(to)
	})
	ways.Go(func() { _, _ = io.Copy(c, to); closeWrite(c) })
	ways.Wait()
}

// way opens the way that a request asks for, or says with which status it is refused.
func (p *Proxy) way(r *http.Request) (net.Conn, int) {
	asked := http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	user, password, _ := asked.BasicAuth()
	switch {
	case user != User || password != Password:
		return nil, http.StatusProxyAuthRequired
	case r.Method != http.MethodConnect:
		return nil, http.StatusForbidden
	}
	c, err := p.dial(r.Host)
	var refusal Refusal
	switch {
	case errors.As(err, &refusal):
		return nil, int(refusal)
	case err != nil:
		return nil, http.StatusBadGateway
	}
	return c, http.StatusOK
}

// closeWrite passes the end of one direction on; a connection without halves ends.
func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	_ = c.Close()
}
