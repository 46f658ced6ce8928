package gateway

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"tensorturn/domain"
)

// Admission limits of the WebSocket: the NATS server does not limit sockets that have not authenticated yet.
const (
	maxWebsockets     = 4 * domain.MaxMachines // one machine has one, two while it reconnects
	maxWebsocketsByIP = 128                    // a household behind one address
)

// websocket passes upgrades to the embedded server's loopback listener. The path stays as it is; the forwarded-for
// header of the caller is dropped and set anew, since the server believes it.
func (g *Gateway) websocket() http.Handler {
	target := &url.URL{Scheme: "http", Host: g.cfg.Websocket}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.Header.Del("X-Forwarded-For")
			p.SetURL(target)
			p.Out.Host = target.Host
			p.SetXForwarded()
		},
		FlushInterval: -1,
		ErrorLog:      quietLog(g.cfg.Logger),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			refuse(w, domain.Unavailable("pass the WebSocket on", "the NATS server did not answer", "try again", err))
		},
	}
	gate := &admission{byIP: map[string]int{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			refuse(w, domain.Invalid("open a WebSocket", "the request asks for no upgrade", "a proxy on the way may strip WebSocket headers"))
			return
		}
		release, ok := gate.enter(r.RemoteAddr)
		if !ok {
			refuse(w, domain.Unavailable("open a WebSocket", "too many connections", "try again later", nil))
			return
		}
		defer release()
		rc := http.NewResponseController(w)
		rc.SetReadDeadline(time.Time{}) // an upgraded connection outlives the request limits
		rc.SetWriteDeadline(time.Time{})
		proxy.ServeHTTP(w, r)
	})
}

// admission counts open WebSockets, in all and by address.
type admission struct {
	all  atomic.Int64
	mu   sync.Mutex
	byIP map[string]int
}

func (a *admission) enter(remote string) (release func(), ok bool) {
	ip, _, err := net.SplitHostPort(remote)
	if err != nil {
		ip = remote
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all.Load() >= maxWebsockets || a.byIP[ip] >= maxWebsocketsByIP {
		return nil, false
	}
	a.all.Add(1)
	a.byIP[ip]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.all.Add(-1)
		if a.byIP[ip]--; a.byIP[ip] <= 0 {
			delete(a.byIP, ip)
		}
	}, true
}
