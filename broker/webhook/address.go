package webhook

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"tensorturn/domain"
)

// Limits of one delivery.
const (
	dialLimit    = 5 * time.Second
	attemptLimit = 15 * time.Second // as Standard Webhooks advise
	maxURL       = 2048
	maxAnswer    = 4 << 10 // of the receiver's body, read and thrown away, so that the connection can be used again
)

// inside lists what an address outside of the internet looks like, beyond what netip knows by name.
func inside() []netip.Prefix {
	var out []netip.Prefix
	for _, p := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", // the translated ones lead to any IPv4 address
	} {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// public reports whether an address belongs to the internet and not to somebody's own network.
func public(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsValid() || a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() || a.IsInterfaceLocalMulticast() {
		return false
	}
	for _, p := range inside() {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// checkURL refuses what is no receiver: https alone, unless private addresses are allowed.
func checkURL(s string, private bool) error {
	const op = "create webhook"
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || len(s) > maxURL || u.User != nil || u.Fragment != "":
		return domain.Invalid(op, fmt.Sprintf("%q is not the URL of a receiver", domain.Clip(s, 80)), "give it as https://example.org/hook")
	case u.Scheme != "https" && !(private && u.Scheme == "http"):
		return domain.Invalid(op, "the URL does not begin with https", "events are sent encrypted; a hub started with --private-webhooks also sends over http")
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && !private && !public(a) {
		return errPrivate(a.String())
	}
	return nil
}

func errPrivate(address string) error {
	return domain.Denied("send to a webhook", address+" is an address of a private network", "use a public address, or start the hub with --private-webhooks")
}

// newClient makes the HTTP client of all hooks. The address is checked when it is dialled, behind every name lookup: a
// name that was public when the hook was made may lead inside now.
func newClient(private bool) *http.Client {
	d := &net.Dialer{Timeout: dialLimit, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		a, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if !private && !public(a.Addr()) {
			return errPrivate(a.Addr().String())
		}
		return nil
	}}
	t := &http.Transport{DialContext: d.DialContext, TLSHandshakeTimeout: dialLimit, ResponseHeaderTimeout: attemptLimit,
		MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10}
	return &http.Client{Transport: t, Timeout: attemptLimit, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
