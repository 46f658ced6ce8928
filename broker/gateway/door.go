package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/domain"
)

// startPatience is how long a request waits at the door for a hub that is still reading its log. Agents and commands that
// come right behind a restart are served a moment later instead of being sent away for seconds.
const startPatience = 20 * time.Second

// Door is the public port's server. It opens before the log is read: it says on /healthz that the hub is starting, and
// lets every other request wait for the Gateway.
type Door struct {
	server  *http.Server
	conns   *connections
	base    context.Context
	stop    context.CancelFunc // ends long polls and WebSockets
	done    chan error         // what Serve ended with; nil before Start
	once    sync.Once
	front   atomic.Pointer[Gateway]
	open    chan struct{} // closed when front is there
	waiting atomic.Int64  // requests that wait for it
}

// NewDoor makes a door that is closed.
func NewDoor(log zerolog.Logger) *Door {
	d := &Door{conns: newConnections(newAdmission(maxConns, maxConnsByIP)), open: make(chan struct{})}
	d.base, d.stop = context.WithCancel(context.Background())
	d.server = &http.Server{
		Handler: d, ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, MaxHeaderBytes: maxHeaderBytes,
		IdleTimeout: 2 * time.Minute, BaseContext: func(net.Listener) context.Context { return d.base },
		ConnState: d.conns.changed, ErrorLog: quietLog(log),
	}
	return d
}

// Start serves TLS on the listener until Stop. It is called once.
func (d *Door) Start(l net.Listener, tlsConfig *tls.Config) {
	// HTTP/1.1 only: the WebSocket to NATS needs its upgrade, and one protocol is one thing to limit.
	cfg := tlsConfig.Clone()
	cfg.NextProtos = []string{"http/1.1"}
	d.done = make(chan error, 1)
	go func() {
		d.done <- d.server.Serve(tls.NewListener(l, cfg))
		close(d.done)
	}()
}

// admit lets requests through to the front.
func (d *Door) admit(g *Gateway) {
	d.once.Do(func() {
		d.front.Store(g)
		close(d.open)
	})
}

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g := d.front.Load(); g != nil {
		g.handler.ServeHTTP(w, r)
		return
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.URL.Path == "/healthz" {
		w.WriteHeader(http.StatusServiceUnavailable)
		w.Write([]byte("starting\n"))
		return
	}
	d.waiting.Add(1)
	defer d.waiting.Add(-1)
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	select {
	case <-d.open:
		w.Header().Del("X-Content-Type-Options")
		d.front.Load().handler.ServeHTTP(w, r)
	case <-patience.C:
		p := &problem{Status: http.StatusServiceUnavailable, Title: http.StatusText(http.StatusServiceUnavailable), Kind: domain.KindUnavailable,
			Detail: "the hub is starting: it reads its log", Next: "ask again in a few seconds"}
		p.write(w)
	case <-r.Context().Done():
	}
}

// Stop ends long polls, WebSockets and idle connections, waits for requests in flight up to a limit, and returns. It may
// be called without Start, and again.
func (d *Door) Stop() error {
	d.stop()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownWait)
	defer cancel()
	d.conns.hangUp()
	err := d.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, d.server.Close())
	}
	if d.done != nil {
		if served, first := <-d.done; first && !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
	}
	return err
}
