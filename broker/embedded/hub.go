package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"tensorturn/domain"
)

// Hub is the hub's running broker. Its methods are safe for concurrent use.
type Hub struct {
	resolver *server.MemAccResolver
	unlock   func() error
	opts     HubOptions
	log      *logger

	stop sync.Once
	err  error

	recycling sync.Mutex // one Recycle or Shutdown at a time
	mu        sync.Mutex
	srv       *server.Server // replaced by Recycle
	port      int            // of the WebSocket listener: the front keeps its address over a Recycle
	conns     []*nats.Conn
}

// server is the one that runs now.
func (h *Hub) server() *server.Server {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.srv
}

// StartHub locks the store directory, starts the server, loads the accounts and waits until JetStream has recovered.
// When ctx ends first, everything is stopped again. Errors: domain.KindConflict when another hub holds the directory.
func StartHub(ctx context.Context, o HubOptions) (*Hub, error) {
	unlock, err := Lock(o.StoreDir)
	if err != nil {
		return nil, err
	}
	h := &Hub{resolver: &server.MemAccResolver{}, unlock: unlock, opts: o, log: &logger{log: o.Logger}, port: server.RANDOM_PORT}
	if err := h.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start broker: %w", err), h.Shutdown())
	}
	return h, nil
}

func (h *Hub) start(ctx context.Context) error {
	tokens := append([]string{h.opts.System.JWT, h.opts.Hub.JWT, h.opts.Service.JWT}, h.opts.Machines...)
	for _, tok := range tokens {
		if _, err := h.store(tok); err != nil {
			return err
		}
	}
	return h.startServer(ctx)
}

// startServer starts a server on the store and waits until it has recovered. One that did not come up is left for
// stopServer.
func (h *Hub) startServer(ctx context.Context) error {
	mended, err := MendStore(h.opts.StoreDir)
	for _, m := range mended {
		h.opts.Logger.Warn().Str("found", m).Msg("the store was damaged and is mended as far as that goes")
	}
	if err != nil {
		return domain.Unavailable("start the store", "its files cannot be looked at", "look at the disk", err)
	}
	so, err := h.serverOptions()
	if err != nil {
		return err
	}
	srv, err := server.NewServer(so)
	if err != nil {
		return err
	}
	h.log.reset()
	h.mu.Lock()
	h.srv = srv
	h.mu.Unlock()
	srv.SetLoggerV2(h.log, false, false, false)
	srv.Start()
	if err := waitReady(ctx, srv, h.log); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(h.WebsocketAddr())
	if err == nil {
		h.port, err = strconv.Atoi(port)
	}
	return err
}

func (h *Hub) serverOptions() (*server.Options, error) {
	op, err := jwt.DecodeOperatorClaims(h.opts.Operator)
	if err != nil {
		return nil, domain.Invalid("read operator", err.Error(), "restore the key directory")
	}
	o := &server.Options{
		ServerName: h.opts.Name,
		DontListen: true, // no plain client port
		NoSigs:     true, // signals are cmd's

		TrustedOperators: []*jwt.OperatorClaims{op},
		SystemAccount:    h.opts.System.Public,
		AccountResolver:  h.resolver,

		JetStream: true, StoreDir: h.opts.StoreDir, JetStreamDomain: JetStreamDomain,
		JetStreamMaxStore: h.opts.MaxStore, JetStreamMaxMemory: h.opts.MaxMemory,
		SyncAlways: true, // otherwise an acknowledgement means "the kernel has it"

		MaxConn: maxConnections, MaxPayload: maxPayload,
		PingInterval: pingInterval, MaxPingsOut: maxPingsOut, WriteDeadline: writeDeadline,
		AuthTimeout: handshakeTimeout.Seconds(),
	}
	o.Websocket = server.WebsocketOpts{
		Host: "127.0.0.1", Port: h.port, NoTLS: true, Advertise: h.opts.Advertise,
		HandshakeTimeout: handshakeTimeout, AuthTimeout: handshakeTimeout.Seconds(), PingInterval: pingInterval,
	}
	o.LeafNode = server.LeafNodeOpts{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoAdvertise: true, // must not be 0, or WebSocket leafs are refused
		AuthTimeout: handshakeTimeout.Seconds(), WriteDeadline: writeDeadline,
		Compression:             server.CompressionOpts{Mode: server.CompressionOff},
		IsolateLeafnodeInterest: true, // a machine's interest is nobody else's business, and O(n²) otherwise
	}
	return o, nil
}

// waitReady waits for listeners and store, or for the server's own report of failure.
func waitReady(ctx context.Context, s *server.Server, log *logger) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for ctx.Err() == nil {
		if s.ReadyForConnections(100 * time.Millisecond) {
			return nil
		}
		if why := log.failure(); why != "" {
			return domain.Unavailable("start broker", why, "see the log", nil)
		}
		if !s.Running() {
			return domain.Unavailable("start broker", "the server ended while starting", "see the log", nil)
		}
	}
	return domain.Unavailable("start broker", "not ready in time", "a large store needs longer; look at the disk", context.Cause(ctx))
}

// HubConn is a new connection to HUB, the account with JetStream. The hub closes it at Shutdown.
func (h *Hub) HubConn(name string) (*nats.Conn, error) { return h.connect(name, h.opts.Hub.User) }

// ServiceConn is a new connection to SVC, where machines are answered.
func (h *Hub) ServiceConn(name string) (*nats.Conn, error) {
	return h.connect(name, h.opts.Service.User)
}

// SystemConn is a new connection to SYS, for connect and disconnect advisories.
func (h *Hub) SystemConn(name string) (*nats.Conn, error) { return h.connect(name, h.opts.System.User) }

func (h *Hub) connect(name string, u User) (*nats.Conn, error) {
	nc, err := connectInProcess(h, name, nats.UserJWT(u.JWT, u.Sign), nats.ReconnectWait(recycleWait), nats.ReconnectJitter(0, 0))
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns = append(h.conns, nc)
	return nc, nil
}

// InProcessConn implements nats.InProcessConnProvider: a connection to the server that runs now, so that clients come back
// by themselves when it has been recycled.
func (h *Hub) InProcessConn() (net.Conn, error) { return h.server().InProcessConn() }

func connectInProcess(s nats.InProcessConnProvider, name string, opts ...nats.Option) (*nats.Conn, error) {
	opts = append(opts, nats.InProcessServer(s), nats.Name(name), nats.Timeout(handshakeTimeout),
		nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort())
	nc, err := nats.Connect(nats.DefaultURL, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect in process as %s: %w", name, err)
	}
	return nc, nil
}

// WebsocketAddr is the loopback host:port the HTTPS front passes upgrades under /nats to, path unchanged.
func (h *Hub) WebsocketAddr() string {
	u, err := url.Parse(h.server().WebsocketURL())
	domain.Assert(err == nil, "a started hub has a websocket listener")
	return u.Host
}

// Shutdown closes the connections, stops the server, waits for its store and gives the directory back. Calling it again
// returns the first result.
func (h *Hub) Shutdown() error {
	h.stop.Do(func() {
		h.recycling.Lock()
		defer h.recycling.Unlock()
		h.mu.Lock()
		for _, nc := range h.conns {
			nc.Close()
		}
		h.mu.Unlock()
		stopServer(h.server())
		h.err = h.unlock()
	})
	return h.err
}

func stopServer(s *server.Server) {
	if s == nil {
		return
	}
	s.Shutdown()
	s.WaitForShutdown() // a store that is still closing must not be opened by the next hub
}
