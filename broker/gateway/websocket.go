package gateway

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"tensorturn/domain"
)

// websocket passes upgrades to the embedded server's loopback listener. The path stays as it is; the forwarded-for
// header of the caller is dropped and set anew, since the server believes it. Who it is, the NATS server asks.
func (g *Gateway) websocket() http.Handler {
	target := &url.URL{Scheme: "http", Host: g.cfg.Websocket}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.Header.Del("X-Forwarded-For")
			p.Out.Header.Del("X-Real-Ip")
			p.SetURL(target)
			p.Out.Host = target.Host
			p.SetXForwarded()
		},
		FlushInterval: -1,
		ErrorLog:      quietLog(g.cfg.Logger),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			g.refuse(w, domain.Unavailable("pass the WebSocket on", "the NATS server did not answer", "try again", err))
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			g.refuse(w, domain.Invalid("open a WebSocket", "the request asks for no upgrade", "a proxy on the way may strip WebSocket headers"))
			return
		}
		release, ok := g.sockets.enter(r.RemoteAddr)
		if !ok {
			g.refuse(w, domain.Unavailable("open a WebSocket", "too many connections", "try again later", nil))
			return
		}
		defer release()
		rc := http.NewResponseController(w)
		rc.SetReadDeadline(time.Time{}) // an upgraded connection outlives the request limits
		rc.SetWriteDeadline(time.Time{})
		proxy.ServeHTTP(w, r)
	})
}
