package embedded

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"tensorturn/domain"
)

// nats-server (2.15) looks the hub's name up on this machine before it asks its proxy for a tunnel, and gives up when there is no answer. In many
// offices only the proxy resolves names of the world outside. There the leafnode is given a placeholder address and a proxy of our own on
// loopback, which asks the real one for the hub by its name.

// placeholder is an address that nobody has (RFC 5737): no lookup, and no harm should it ever be dialled.
const placeholder = "192.0.2.1"

const (
	lookupTime = 5 * time.Second // whether the hub's name is known on this machine
	maxTunnels = 16              // at a time; a leafnode holds one and dials another
)

// tunnel is the proxy on loopback. Only who knows its password may use it: other users of this machine do not.
type tunnel struct {
	listener net.Listener
	password string
	proxy    *url.URL // the real one
	target   string   // host:port of the hub, by name
	slots    chan struct{}
	ctx      context.Context // ended by stop
	cancel   context.CancelFunc
	work     sync.WaitGroup
}

const tunnelUser = "leaf"

func openTunnel(proxy *url.URL, target string) (*tunnel, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, domain.Unavailable("start leafnode", "no port on loopback can be taken for the proxy's tunnel", "look at what else runs on this machine", err)
	}
	t := &tunnel{listener: l, password: rand.Text(), proxy: proxy, target: target, slots: make(chan struct{}, maxTunnels)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.work.Go(t.accept)
	return t, nil
}

// url is how the leafnode reaches the tunnel.
func (t *tunnel) url() string { return "http://" + t.listener.Addr().String() }

// stop closes everything and waits for it. A nil tunnel is stopped.
func (t *tunnel) stop() {
	if t == nil {
		return
	}
	t.cancel()
	_ = t.listener.Close()
	t.work.Wait()
}

func (t *tunnel) accept() {
	for {
		c, err := t.listener.Accept()
		if err != nil {
			return
		}
		select {
		case t.slots <- struct{}{}:
			t.work.Go(func() {
				defer func() { <-t.slots }()
				t.serve(c)
			})
		default:
			_ = c.Close()
		}
	}
}

// serve answers one CONNECT of the leafnode with a tunnel through the real proxy, whatever address it names.
func (t *tunnel) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	unhook := context.AfterFunc(t.ctx, func() { _ = c.Close() })
	defer unhook()
	_ = c.SetDeadline(time.Now().Add(handshakeTimeout))
	in := bufio.NewReader(io.LimitReader(c, 8<<10))
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	status := http.StatusOK
	var hub net.Conn
	switch asked := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}); {
	case r.Method != http.MethodConnect:
		status = http.StatusMethodNotAllowed
	case !t.knows(asked):
		status = http.StatusProxyAuthRequired
	default:
		if hub, err = dialThrough(t.ctx, t.proxy, t.target); err != nil {
			status = http.StatusBadGateway
		}
	}
	if hub != nil {
		defer func() { _ = hub.Close() }()
		defer context.AfterFunc(t.ctx, func() { _ = hub.Close() })()
	}
	answer := http.Response{Status: fmt.Sprint(status, " ", http.StatusText(status)), StatusCode: status, ProtoMajor: 1, ProtoMinor: 1}
	if err != nil {
		answer.Status = fmt.Sprint(status, " ", domain.Clip(err.Error(), 200)) // the leafnode's log tells it
	}
	if err := answer.Write(c); err != nil || hub == nil {
		return
	}
	_ = c.SetDeadline(time.Time{})
	var ways sync.WaitGroup
	ways.Go(func() { _, _ = io.Copy(hub, c); _ = hub.Close() })
	ways.Go(func() { _, _ = io.Copy(c, hub); _ = c.Close() })
	ways.Wait()
}

func (t *tunnel) knows(r *http.Request) bool {
	user, password, _ := r.BasicAuth()
	return user == tunnelUser && subtle.ConstantTimeCompare([]byte(password), []byte(t.password)) == 1
}

// dialThrough opens a connection to target through an HTTP CONNECT proxy.
func dialThrough(ctx context.Context, proxy *url.URL, target string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	at := proxy.Host
	if proxy.Port() == "" {
		at = net.JoinHostPort(proxy.Hostname(), map[string]string{"http": "80", "https": "443"}[proxy.Scheme])
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, fmt.Errorf("reach the proxy: %w", err)
	}
	if proxy.Scheme == "https" {
		c = tls.Client(c, &tls.Config{ServerName: proxy.Hostname(), MinVersion: tls.VersionTLS12})
	}
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	unhook := context.AfterFunc(ctx, func() { _ = c.Close() })
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: target}, Host: target, Header: http.Header{}}
	if proxy.User != nil {
		password, _ := proxy.User.Password()
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(proxy.User.Username()+":"+password)))
	}
	err = req.Write(c)
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(bufio.NewReaderSize(c, 16), req) // the hub says nothing before we do: no byte of the tunnel is taken
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the proxy answers %s", domain.Clip(resp.Status, 80))
	}
	if err == nil && !unhook() {
		err = ctx.Err()
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, c.SetDeadline(time.Time{})
}

// unknownHere reports whether this machine cannot resolve the name.
func unknownHere(ctx context.Context, host string) bool {
	if net.ParseIP(host) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	found, err := net.DefaultResolver.LookupHost(ctx, host)
	return err != nil || len(found) == 0
}
