package embedded

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"tensorturn/domain"
)

// Leaf is an agent's running leafnode. It dials the hub for as long as it lives; losing the hub is no error.
type Leaf struct {
	srv  *server.Server
	nc   *nats.Conn
	way  *tunnel // nil unless a proxy alone knows the hub's name
	stop sync.Once
}

// StartLeaf starts the leafnode and returns as soon as local programs can talk to it; the link to the hub comes up
// behind it (Connected, WaitConnected).
func StartLeaf(ctx context.Context, o LeafOptions) (*Leaf, error) {
	so, err := leafOptions(o)
	if err != nil {
		return nil, err
	}
	way, err := leadThrough(ctx, so.LeafNode.Remotes[0])
	if err != nil {
		return nil, err
	}
	srv, err := server.NewServer(so)
	if err != nil {
		way.stop()
		return nil, fmt.Errorf("start leafnode: %w", err)
	}
	log := &logger{log: o.Logger}
	srv.SetLoggerV2(log, false, false, false)
	srv.Start()
	l := &Leaf{srv: srv, way: way}
	if err := waitReady(ctx, srv, log); err != nil {
		l.Shutdown()
		return nil, fmt.Errorf("start leafnode: %w", err)
	}
	if l.nc, err = connectInProcess(srv, "agent"); err != nil {
		l.Shutdown()
		return nil, fmt.Errorf("start leafnode: %w", err)
	}
	return l, nil
}

// Conn is the agent's connection to its leafnode. It never sees an outage of the hub: a request then fails with "no
// responders" at once, and a publish is lost. The leaf closes it at Shutdown.
func (l *Leaf) Conn() *nats.Conn { return l.nc }

// Connected reports whether the link to the hub is up: the watchdog's question.
func (l *Leaf) Connected() bool { return l.srv.NumLeafNodes() > 0 }

// Link is the number of the link to the hub, another one for each that is made; 0 while there is none.
func (l *Leaf) Link() uint64 {
	z, err := l.srv.Leafz(nil)
	if err != nil || len(z.Leafs) == 0 {
		return 0
	}
	return z.Leafs[0].ID
}

// WaitConnected waits until the link is up or ctx ends.
func (l *Leaf) WaitConnected(ctx context.Context) error {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for !l.Connected() {
		select {
		case <-again.C:
		case <-ctx.Done():
			return domain.Unavailable("connect to the hub", "the leafnode has no link", "see the log; check address, network and credential", context.Cause(ctx))
		}
	}
	return nil
}

// Shutdown closes the connection, stops the leafnode and waits for it. Calling it again does nothing.
func (l *Leaf) Shutdown() {
	l.stop.Do(func() {
		if l.nc != nil {
			l.nc.Close()
		}
		stopServer(l.srv)
		l.way.stop()
	})
}

func leafOptions(o LeafOptions) (*server.Options, error) {
	const op = "start leafnode"
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "wss" || u.Port() == "" {
		return nil, domain.Invalid(op, fmt.Sprintf("%q is not a wss URL with a port", domain.Clip(o.URL, 200)), "give it as wss://hub.example.org:7443/nats")
	}
	if o.TLS == nil || o.TLS.RootCAs == nil {
		return nil, domain.Invalid(op, "no CA to trust", "join the hub again")
	}
	if o.User.JWT == nil || o.User.Sign == nil {
		return nil, domain.Invalid(op, "no credential", "join the hub again")
	}
	lo, hi := o.ReconnectMin, o.ReconnectMax
	if lo <= 0 {
		lo = DefaultReconnectMin
	}
	if hi < lo {
		hi = max(lo, DefaultReconnectMax)
	}
	remote, err := remoteOptions(o, u)
	if err != nil {
		return nil, err
	}
	return &server.Options{
		// The fresh suffix keeps two agents that were given one name, or an agent and its predecessor whose connection
		// the hub has not yet given up, from closing each other's link as a duplicate.
		ServerName: o.Name + "-" + nuid.Next(),
		DontListen: true, NoSigs: true, MaxPayload: maxPayload,
		PingInterval: pingInterval, MaxPingsOut: maxPingsOut, WriteDeadline: writeDeadline,
		Websocket: server.WebsocketOpts{PingInterval: pingInterval},
		LeafNode: server.LeafNodeOpts{
			Remotes:           []*server.RemoteLeafOpts{remote},
			ReconnectInterval: lo + rand.N(hi-lo+1),
			DialTimeout:       handshakeTimeout, WriteDeadline: writeDeadline,
			Compression: server.CompressionOpts{Mode: server.CompressionOff},
		},
	}, nil
}

func remoteOptions(o LeafOptions, u *url.URL) (*server.RemoteLeafOpts, error) {
	r := &server.RemoteLeafOpts{
		URLs: []*url.URL{u}, TLS: true, TLSConfig: pinned(o.TLS), TLSTimeout: handshakeTimeout.Seconds(),
		FirstInfoTimeout: handshakeTimeout, DialTimeout: handshakeTimeout,
		Compression:             server.CompressionOpts{Mode: server.CompressionOff},
		IgnoreDiscoveredServers: true, // the hub advertises its loopback listeners
		SignatureCB: func(nonce []byte) (string, []byte, error) {
			tok, err := o.User.JWT()
			if err != nil {
				return "", nil, err
			}
			sig, err := o.User.Sign(nonce)
			return tok, sig, err
		},
	}
	proxy, err := proxyFor(o, u)
	if err != nil || proxy == nil {
		return r, err
	}
	r.Proxy.Timeout = handshakeTimeout
	if proxy.User != nil {
		r.Proxy.Username = proxy.User.Username()
		r.Proxy.Password, _ = proxy.User.Password()
	}
	r.Proxy.URL = (&url.URL{Scheme: proxy.Scheme, Host: proxy.Host}).String()
	return r, nil
}

// leadThrough gives a remote behind a proxy a tunnel of our own when only the proxy knows the hub's name; nil when none is needed.
func leadThrough(ctx context.Context, r *server.RemoteLeafOpts) (*tunnel, error) {
	u := r.URLs[0]
	if r.Proxy.URL == "" || !unknownHere(ctx, u.Hostname()) {
		return nil, nil
	}
	proxy, err := url.Parse(r.Proxy.URL)
	if err != nil {
		return nil, domain.Invalid("start leafnode", "the proxy's address cannot be read: "+err.Error(), "set HTTPS_PROXY to http://host:port")
	}
	if r.Proxy.Username != "" {
		proxy.User = url.UserPassword(r.Proxy.Username, r.Proxy.Password)
	}
	t, err := openTunnel(proxy, u.Host)
	if err != nil {
		return nil, err
	}
	r.Proxy.URL, r.Proxy.Username, r.Proxy.Password = t.url(), tunnelUser, t.password
	r.TLSConfig.ServerName = u.Hostname() // the certificate is judged by the name, not by the placeholder
	there := *u
	there.Host = net.JoinHostPort(placeholder, u.Port())
	r.URLs = []*url.URL{&there}
	return t, nil
}

// proxyFor asks for the proxy of the https address behind a wss URL; nats-server itself does not read the environment.
func proxyFor(o LeafOptions, u *url.URL) (*url.URL, error) {
	target := *u
	target.Scheme = "https"
	find := o.Proxy
	if find == nil {
		find = func(t *url.URL) (*url.URL, error) { return http.ProxyFromEnvironment(&http.Request{URL: t}) }
	}
	p, err := find(&target)
	if err != nil {
		return nil, domain.Invalid("start leafnode", "the proxy setting cannot be read: "+err.Error(), "set HTTPS_PROXY to http://host:port")
	}
	return p, nil
}

func pinned(c *tls.Config) *tls.Config {
	c = c.Clone()
	c.MinVersion = tls.VersionTLS13
	return c
}
