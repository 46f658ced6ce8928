package embedded_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"tensorturn/broker/embedded"
	"tensorturn/domain"
	"tensorturn/test/hostile/pool"
)

// TestProxy: the leaf goes through an HTTP CONNECT proxy when there is one.
func TestProxy(t *testing.T) {
	p := pool.New(t)
	m := p.Enrol("a", time.Hour)
	p.Serve(nil)
	px := newProxy(t)
	o := p.LeafOptions(m)
	var asked atomic.Value
	o.Proxy = func(u *url.URL) (*url.URL, error) { asked.Store(u.Scheme); return px.url, nil }
	l, err := embedded.StartLeaf(context.Background(), o)
	pool.Must(t, err)
	t.Cleanup(l.Shutdown)
	_, err = pool.Sync(pool.Context(t, patience), l.Conn(), "hello")
	pool.Must(t, err)
	if px.tunnels.Load() == 0 {
		t.Error("the link went around the proxy")
	}
	if asked.Load() != "https" {
		t.Errorf("the proxy was asked for scheme %v: HTTPS_PROXY speaks of https", asked.Load())
	}
}

type proxy struct {
	url     *url.URL
	tunnels atomic.Int32
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	pool.Must(t, err)
	p := &proxy{url: &url.URL{Scheme: "http", Host: l.Addr().String()}}
	srv := &http.Server{Handler: http.HandlerFunc(p.tunnel), ReadHeaderTimeout: patience}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return p
}

func (p *proxy) tunnel(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "only CONNECT", http.StatusMethodNotAllowed)
		return
	}
	up, err := net.Dial("tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer up.Close()
	down, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer down.Close()
	p.tunnels.Add(1)
	_, _ = io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n")
	done := make(chan struct{})
	go func() { defer close(done); _, _ = bufio.NewReader(buf).WriteTo(up); _ = up.Close() }()
	_, _ = io.Copy(down, up)
	_ = down.Close()
	<-done
}

func TestLeafRefusesBadOptions(t *testing.T) {
	p := pool.New(t)
	good := p.LeafOptions(p.Enrol("a", time.Hour))
	for name, spoil := range map[string]func(*embedded.LeafOptions){
		"no port":       func(o *embedded.LeafOptions) { o.URL = "wss://hub.example.org/nats" },
		"plain ws":      func(o *embedded.LeafOptions) { o.URL = "ws://hub.example.org:80/nats" },
		"no TLS":        func(o *embedded.LeafOptions) { o.TLS = nil },
		"system roots":  func(o *embedded.LeafOptions) { o.TLS = &tls.Config{} },
		"no credential": func(o *embedded.LeafOptions) { o.User = embedded.User{} },
		"broken proxy": func(o *embedded.LeafOptions) {
			o.Proxy = func(*url.URL) (*url.URL, error) { return nil, io.ErrUnexpectedEOF }
		},
	} {
		o := good
		spoil(&o)
		l, err := embedded.StartLeaf(context.Background(), o)
		if domain.KindOf(err) != domain.KindInvalid || domain.NextOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
		if l != nil {
			l.Shutdown()
		}
	}
}

// TestWrongCA: a leaf that trusts another CA never connects, and says nothing to the stranger.
func TestWrongCA(t *testing.T) {
	p, other := pool.New(t), pool.New(t)
	m := p.Enrol("a", time.Hour)
	m.Agent.CA = other.Keys.CA()
	l, err := embedded.StartLeaf(context.Background(), p.LeafOptions(m))
	pool.Must(t, err)
	t.Cleanup(l.Shutdown)
	waitLog(t, p, "certificate signed by unknown authority")
	if l.Connected() {
		t.Error("connected to a hub whose CA it does not trust")
	}
	if err := l.WaitConnected(pool.Context(t, 50*time.Millisecond)); domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("wait: %v", err)
	}
}

func TestLockNeedsADirectory(t *testing.T) {
	if _, err := embedded.Lock(""); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("an empty directory would be the temp directory of everybody: %v", err)
	}
}
