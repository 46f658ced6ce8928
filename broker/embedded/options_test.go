package embedded_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"tensorturn/broker/embedded"
	"tensorturn/domain"
	"tensorturn/test/hostile/pool"
	"tensorturn/test/proxy"
)

// TestProxy: the leaf goes through an HTTP CONNECT proxy when there is one.
func TestProxy(t *testing.T) {
	p := pool.New(t)
	m := p.Enrol("a", time.Hour)
	p.Serve(nil)
	px := proxy.New(t, func(host string) (net.Conn, error) { return net.Dial("tcp", host) })
	o := p.LeafOptions(m)
	var asked atomic.Value
	o.Proxy = func(u *url.URL) (*url.URL, error) { asked.Store(u.Scheme); return px.URL, nil }
	l, err := embedded.StartLeaf(context.Background(), o)
	pool.Must(t, err)
	t.Cleanup(l.Shutdown)
	_, err = pool.Sync(pool.Context(t, patience), l.Conn(), "hello")
	pool.Must(t, err)
	if opened, _ := px.Counts(); opened == 0 {
		t.Error("the link went around the proxy")
	}
	if asked.Load() != "https" {
		t.Errorf("the proxy was asked for scheme %v: HTTPS_PROXY speaks of https", asked.Load())
	}
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
