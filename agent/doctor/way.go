package doctor

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"time"

	"tensorturn/broker/identity"
	"tensorturn/domain"
)

// blocked is why a way to the hub does not come about: the finding of the layer that fails.
type blocked struct{ finding Finding }

func (b *blocked) Error() string { return b.finding.Says }

func stop(c Code, says, fix string) *blocked { return &blocked{problem(c, says, fix)} }

// beyond turns what went wrong into the finding of a check that only wants to look further than the layer that failed.
func beyond(err error) (Finding, bool) {
	if err == nil {
		return Finding{}, false
	}
	var b *blocked
	if errors.As(err, &b) {
		return Finding{State: Skipped, Code: b.finding.Code, Says: "not reached: see " + string(b.finding.Code)}, true
	}
	return Finding{State: Unknown, Code: Unfinished, Says: "the hub's answer did not come: " + domain.Clip(err.Error(), 200), Fix: "look again; if this goes on, the way to the hub comes and goes"}, true
}

// way is the path to the hub: its address, or that of the proxy before it.
type way struct {
	e     *exam
	hub   *url.URL
	proxy *url.URL
}

// port gives host and port of u with the scheme's own port where none is named.
func port(u *url.URL) string {
	p := u.Port()
	if p == "" {
		p = map[string]string{"http": "80"}[u.Scheme]
	}
	if p == "" {
		p = "443"
	}
	return net.JoinHostPort(u.Hostname(), p)
}

func (e *exam) way() (*way, error) {
	u, err := url.Parse(e.Hub)
	if err != nil || u.Hostname() == "" {
		return nil, stop(NameUnknown, fmt.Sprintf("%q is no address of a hub", domain.Clip(e.Hub, 200)), "give it as https://hub.example.org:7443")
	}
	w := &way{e: e, hub: u}
	if w.proxy, err = e.Proxy(u); err != nil {
		return nil, stop(ProxyRefuses, "the proxy setting cannot be read: "+err.Error(), "set HTTPS_PROXY to http://host:port")
	}
	return w, nil
}

// first is the address that is dialled first, and what it is called.
func (w *way) first() (u *url.URL, what string) {
	if w.proxy != nil {
		return w.proxy, "the proxy"
	}
	return w.hub, "the hub"
}

// resolve finds the addresses of the first hop.
func (w *way) resolve(ctx context.Context) ([]string, error) {
	u, what := w.first()
	host := u.Hostname()
	if net.ParseIP(host) != nil {
		return []string{host}, nil
	}
	found, err := w.e.Lookup(ctx, host)
	if err == nil && len(found) > 0 {
		return found, nil
	}
	why := "it has no address"
	var dns *net.DNSError
	if errors.As(err, &dns) && !dns.IsNotFound {
		why = dns.Err
	}
	return nil, stop(NameUnknown, fmt.Sprintf("%s's name %s is not found here: %s", what, host, why),
		"check its spelling and this machine's DNS; inside a VPN start the VPN; `getent hosts "+host+"` must give an address")
}

// connect opens TCP to the first hop. A hub that cannot reach its own public address is reached on its own machine; own tells.
func (w *way) connect(ctx context.Context) (c net.Conn, own bool, err error) {
	if _, err := w.resolve(ctx); err != nil {
		return nil, false, err
	}
	u, what := w.first()
	at := port(u)
	c, err = w.e.Dial(ctx, "tcp", at)
	if err == nil {
		return c, false, nil
	}
	if w.e.Kind == Hub && w.proxy == nil {
		_, p, _ := net.SplitHostPort(at)
		if c, lerr := w.e.Dial(ctx, "tcp", net.JoinHostPort("127.0.0.1", p)); lerr == nil {
			return c, true, nil
		}
	}
	return nil, false, w.unanswered(what, at, err)
}

// unanswered tells a port where nobody listens from one that a firewall keeps silent.
func (w *way) unanswered(what, at string, err error) error {
	fix := "open TCP " + at + " in the firewalls between, forward it in the hub's router, or set HTTPS_PROXY where one must be used"
	var says, start string
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		says = fmt.Sprintf("nothing listens at %s (%s)", at, what)
		start = "start " + what + ", and check the port in its address"
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		says = fmt.Sprintf("nothing answers at %s (%s): packets are dropped on the way", at, what)
	default:
		says = fmt.Sprintf("%s cannot be reached at %s: %v", what, at, cause(err))
	}
	if w.e.Kind == Hub && w.proxy == nil {
		start = "start it with: " + w.e.Start
	}
	if start != "" {
		fix = start + "; if it runs already, " + fix
	}
	return stop(PortBlocked, says, fix)
}

// cause is the innermost error of a dial, which names no addresses again.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// tunnel asks the proxy for a connection to the hub.
func (w *way) tunnel(ctx context.Context, c net.Conn) error {
	if d, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(d)
		defer func() { _ = c.SetDeadline(time.Time{}) }()
	}
	at := port(w.hub)
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: at}, Host: at, Header: http.Header{}}
	if u := w.proxy.User; u != nil {
		password, _ := u.Password()
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)))
	}
	if err := req.Write(c); err != nil {
		return stop(ProxyRefuses, "the proxy hangs up", "check HTTPS_PROXY: it must name an HTTP proxy")
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 1), req) // no byte of the tunnel may be taken
	switch {
	case err != nil:
		return stop(ProxyRefuses, "the proxy at "+w.proxy.Host+" does not answer as an HTTP proxy does", "check HTTPS_PROXY: it must name an HTTP proxy")
	case resp.StatusCode == http.StatusProxyAuthRequired:
		return stop(ProxyRefuses, "the proxy at "+w.proxy.Host+" wants a user and a password", "set HTTPS_PROXY=http://user:password@"+w.proxy.Host)
	case resp.StatusCode >= 300:
		return stop(ProxyRefuses, fmt.Sprintf("the proxy at %s opens no tunnel to %s: %s", w.proxy.Host, at, domain.Clip(resp.Status, 80)),
			"let it allow CONNECT to "+at+", or put the hub's name into NO_PROXY where a direct way is open")
	}
	return nil
}

// through leads a connection to the first hop on to the hub. It closes what it cannot lead on.
func (w *way) through(ctx context.Context, c net.Conn) (net.Conn, error) {
	if w.proxy == nil {
		return c, nil
	}
	if w.proxy.Scheme == "https" {
		t := tls.Client(c, &tls.Config{ServerName: w.proxy.Hostname(), MinVersion: tls.VersionTLS12, RootCAs: w.e.proxyRoots})
		if err := t.HandshakeContext(ctx); err != nil {
			_ = c.Close()
			return nil, stop(ProxyRefuses, "the proxy at "+w.proxy.Host+" does not speak TLS as its https:// promises: "+domain.Clip(cause(err).Error(), 120),
				"check HTTPS_PROXY: most proxies are spoken to as http://")
		}
		c = t
	}
	if err := w.tunnel(ctx, c); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// open makes a TLS connection and does not yet judge who is at its other end.
func (w *way) open(ctx context.Context) (*tls.Conn, error) {
	c, _, err := w.connect(ctx)
	if err != nil {
		return nil, err
	}
	if c, err = w.through(ctx, c); err != nil {
		return nil, err
	}
	t := tls.Client(c, &tls.Config{ServerName: w.hub.Hostname(), MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true}) // trusted judges the chain, with a word for each thing that may be wrong
	if err := t.HandshakeContext(ctx); err != nil {
		_ = t.Close()
		return nil, stop(CertForeign, "what answers at "+port(w.hub)+" does not speak TLS as a hub does: "+domain.Clip(cause(err).Error(), 120),
			"check the address: the hub's is https with its own port; a proxy that inspects TLS must leave the hub out")
	}
	return t, nil
}

// trusted opens a connection to somebody who has proved to be the hub, whatever this machine's clock says.
func (w *way) trusted(ctx context.Context) (net.Conn, error) {
	t, err := w.open(ctx)
	if err != nil {
		return nil, err
	}
	peers := t.ConnectionState().PeerCertificates
	if err := w.judge(peers, peers[0].NotBefore.Add(peers[0].NotAfter.Sub(peers[0].NotBefore)/2)); err != nil {
		_ = t.Close()
		return nil, err
	}
	return t, nil
}

// judge looks whether the chain is the hub's, at a time. Without a CA and a pin nothing is known to compare it with.
func (w *way) judge(peers []*x509.Certificate, at time.Time) error {
	roots, inter := x509.NewCertPool(), x509.NewCertPool()
	pin, pinned := w.e.pin()
	known := len(w.e.CA) > 0 && roots.AppendCertsFromPEM(w.e.CA)
	for i, c := range peers {
		if !known && pinned && identity.PinOf(c).Equal(pin) {
			roots.AddCert(c)
		}
		if i > 0 {
			inter.AddCert(c)
		}
	}
	if !known && !pinned {
		return nil
	}
	_, err := peers[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: inter, DNSName: w.hub.Hostname(), CurrentTime: at})
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &name):
		return stop(CertOver, fmt.Sprintf("the hub's certificate does not name %s", w.hub.Hostname()), "restart the hub with --public-url "+w.e.Hub)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return stop(CertOver, fmt.Sprintf("the hub's certificate is good from %s to %s, and the hub's clock says %s", peers[0].NotBefore.Format(time.DateOnly), peers[0].NotAfter.Format(time.DateOnly), at.Format(time.DateOnly)),
			"restart the hub: it renews its own; renew the owner's where --tls-cert is used")
	}
	whose := "the hub that this machine joined"
	if !known {
		whose = "the hub that the token was made for"
	}
	return stop(CertForeign, fmt.Sprintf("who answers at %s is not %s; the certificate was issued by %q", port(w.hub), whose, domain.Clip(peers[0].Issuer.CommonName, 60)),
		"check the address; a proxy that inspects TLS must leave the hub out; or join the pool that answers here")
}

// client speaks HTTP over the trusted way, one connection for each request, until ctx ends: the transport's own context for dials does
// not end with the request.
func (w *way) client(ctx context.Context) *http.Client {
	return &http.Client{
		Transport: &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return w.trusted(ctx) },
			DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// answer is one answer of the hub.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// ask makes one request; path may have a query, bearer may be empty.
func (e *exam) ask(ctx context.Context, method, path, bearer string, body io.Reader) (answer, error) {
	w, err := e.way()
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "https://"+w.hub.Host+path, body)
	if err != nil {
		return answer{}, err
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := w.client(ctx).Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return answer{resp.StatusCode, resp.Header, b}, err
}
