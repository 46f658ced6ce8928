// Package pool builds a real hub broker with a TLS front, accounts and machines for tests: everything between a
// machine's credential and the hub's account is the shipped code. It is imported by tests only.
package pool

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/rs/zerolog"

	"tensorturn/broker/embedded"
	"tensorturn/broker/identity"
	"tensorturn/broker/wire"
	"tensorturn/domain"
)

// Pool is a hub broker behind a TLS front on loopback.
type Pool struct {
	tb    testing.TB
	Keys  *identity.Keys
	URL   string // https URL of the front
	Dir   string
	Hub   *embedded.Hub
	Lines *Lines

	backend  atomic.Value // string: the hub's present WebSocket address
	machines []string     // account JWTs
	weakHub  func(string) string
}

// Weaken changes the HUB account's JWT before the hub starts: for positive controls.
func Weaken(f func(hubAccount string) string) func(*Pool) { return func(p *Pool) { p.weakHub = f } }

// New starts a pool; all of it stops with the test.
func New(tb testing.TB, opts ...func(*Pool)) *Pool {
	tb.Helper()
	p := &Pool{tb: tb, Dir: tb.TempDir(), Lines: &Lines{}, weakHub: func(s string) string { return s }}
	for _, o := range opts {
		o(p)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Must(tb, err)
	p.URL = "https://127.0.0.1:" + strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	p.Keys, err = identity.Create(filepath.Join(p.Dir, "keys"), identity.Options{PublicURL: p.URL, Now: time.Now()})
	Must(tb, err)
	p.StartHub()
	p.serve(l)
	tb.Cleanup(func() { Must(tb, p.Hub.Shutdown()) })
	return p
}

// serve is the smallest front: TLS, and /nats passed on with its path unchanged.
func (p *Pool) serve(l net.Listener) {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: p.backend.Load().(string)})
			r.SetXForwarded()
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	mux := http.NewServeMux()
	mux.Handle("/nats", proxy)
	mux.Handle("/nats/", proxy)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, TLSConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{p.Keys.ServerCertificate()},
	}, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.ServeTLS(l, "", "") }()
	p.tb.Cleanup(func() { _ = srv.Close(); <-done })
}

// StartHub starts the broker on the pool's directory.
func (p *Pool) StartHub() {
	p.tb.Helper()
	o, err := p.HubOptions()
	Must(p.tb, err)
	p.Hub, err = embedded.StartHub(context.Background(), o)
	Must(p.tb, err)
	p.backend.Store(p.Hub.WebsocketAddr())
}

// RestartHub stops the broker and starts it again with every machine added so far.
func (p *Pool) RestartHub() {
	p.tb.Helper()
	Must(p.tb, p.Hub.Shutdown())
	p.StartHub()
}

// HubOptions are the options of the pool's broker.
func (p *Pool) HubOptions() (embedded.HubOptions, error) {
	k := p.Keys
	o := embedded.HubOptions{
		Name: "hub", StoreDir: filepath.Join(p.Dir, "store"), MaxStore: 1 << 30, MaxMemory: 64 << 20,
		Machines: p.machines, Logger: zerolog.New(p.Lines),
	}
	var err error
	if o.Operator, err = k.OperatorJWT(); err != nil {
		return o, err
	}
	sys, err := k.SystemAccount()
	if err != nil {
		return o, err
	}
	hub, err := k.HubAccount(identity.Store{Disk: 1 << 30, Memory: 64 << 20})
	if err != nil {
		return o, err
	}
	svc, err := k.ServiceAccount()
	if err != nil {
		return o, err
	}
	for _, a := range []struct {
		role identity.Role
		jwt  string
		into *embedded.Account
	}{
		{identity.RoleSystem, sys, &o.System},
		{identity.RoleHub, p.weakHub(hub), &o.Hub},
		{identity.RoleService, svc, &o.Service},
	} {
		tok, kp, err := k.InProcess(a.role)
		if err != nil {
			return o, err
		}
		*a.into = embedded.Account{Public: k.PublicAccount(a.role), JWT: a.jwt, User: UserOf(tok, kp)}
	}
	return o, nil
}

// UserOf is a user with a fixed credential.
func UserOf(tok string, kp nkeys.KeyPair) embedded.User {
	return embedded.User{JWT: func() (string, error) { return tok, nil }, Sign: kp.Sign}
}

// Machine is an enrolled machine.
type Machine struct {
	identity.Machine
	Agent *identity.AgentKeys

	mu   sync.Mutex
	cred string
}

// Enrol makes a machine with a credential of the given life and loads its account.
func (p *Pool) Enrol(id string, life time.Duration) *Machine {
	p.tb.Helper()
	a, err := identity.NewAgentKeys(p.URL)
	Must(p.tb, err)
	m, err := p.Keys.Machine(domain.MachineID(id))
	Must(p.tb, err)
	acc, err := p.Keys.MachineAccount(m)
	Must(p.tb, err)
	Must(p.tb, p.Hub.AddMachine(acc))
	p.machines = append(p.machines, acc)
	a.Machine, a.CA = m.ID, p.Keys.CA()
	out := &Machine{Machine: m, Agent: a}
	p.Renew(out, life)
	return out
}

// Renew gives the machine a fresh credential.
func (p *Pool) Renew(m *Machine, life time.Duration) {
	p.tb.Helper()
	cred, err := m.Machine.Credential(m.Agent.NKey(), life, time.Now())
	Must(p.tb, err)
	m.SetCredential(cred)
}

// SetCredential replaces what the machine shows at its next attempt.
func (m *Machine) SetCredential(cred string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cred, m.Agent.Credential = cred, cred
}

// CurrentCredential is what the machine shows.
func (m *Machine) CurrentCredential() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cred
}

// User proves the machine to a server.
func (m *Machine) User() embedded.User {
	return embedded.User{JWT: func() (string, error) { return m.CurrentCredential(), nil }, Sign: m.Agent.Key().Sign}
}

// LeafOptions are an agent's options with a reconnect interval fit for tests.
func (p *Pool) LeafOptions(m *Machine) embedded.LeafOptions {
	p.tb.Helper()
	u, err := identity.LeafURL(p.URL)
	Must(p.tb, err)
	t, err := identity.TrustTLS(m.Agent.CA)
	Must(p.tb, err)
	return embedded.LeafOptions{
		Name: string(m.ID), URL: u, TLS: t, User: m.User(),
		ReconnectMin: 100 * time.Millisecond, ReconnectMax: 200 * time.Millisecond, Logger: zerolog.New(p.Lines),
	}
}

// StartLeaf starts the machine's leafnode and waits for its link; it stops with the test.
func (p *Pool) StartLeaf(m *Machine) *embedded.Leaf {
	p.tb.Helper()
	l, err := embedded.StartLeaf(context.Background(), p.LeafOptions(m))
	Must(p.tb, err)
	p.tb.Cleanup(l.Shutdown)
	Must(p.tb, l.WaitConnected(Context(p.tb, 20*time.Second)))
	return l
}

// Answer is the fixed prefix of what the pool's service says; the account follows.
const Answer = "heard "

// Serve answers sync requests as the hub's service does: replies that AcceptReply refuses are dropped, the body is never
// empty or an echo. Every caller's account goes to heard (nil: nowhere).
func (p *Pool) Serve(heard func(account string, body []byte)) *nats.Conn {
	p.tb.Helper()
	nc, err := p.Hub.ServiceConn("service")
	Must(p.tb, err)
	_, err = nc.Subscribe(wire.SyncSubjects, func(m *nats.Msg) {
		acc, ok := wire.AccountOfSync(m.Subject)
		if !ok {
			return
		}
		if heard != nil {
			heard(acc, m.Data)
		}
		if wire.AcceptReply(m.Reply) {
			_ = nc.Publish(m.Reply, []byte(Answer+acc))
		}
	})
	Must(p.tb, err)
	Must(p.tb, nc.Flush())
	return nc
}

// oneTry is how long one request waits: one that was under way when a link broke is never answered.
const oneTry = 500 * time.Millisecond

// Sync asks the hub until it answers or ctx ends: while a leaf has no link there is nobody to answer.
func Sync(ctx context.Context, nc *nats.Conn, body string) (string, error) {
	return Ask(ctx, nc, wire.LocalSync, body)
}

// Ask is Sync on any subject.
func Ask(ctx context.Context, nc *nats.Conn, subject, body string) (string, error) {
	for {
		m, err := nc.Request(subject, []byte(body), oneTry)
		if err == nil {
			return string(m.Data), nil
		}
		if ctx.Err() != nil {
			return "", err
		}
		pause(ctx, 5*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Lines keeps what servers log.
type Lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// Wait waits until one of the texts has been logged.
func (l *Lines) Wait(ctx context.Context, texts ...string) error { return l.WaitFrom(ctx, 0, texts...) }

// WaitFrom is Wait for what is logged behind the first from bytes.
func (l *Lines) WaitFrom(ctx context.Context, from int, texts ...string) error {
	for {
		all := l.String()[from:]
		for _, x := range texts {
			if strings.Contains(all, x) {
				return nil
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("nobody logged %q", texts)
		}
		pause(ctx, 5*time.Millisecond)
	}
}

func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Context ends with the test or after d.
func Context(tb testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	tb.Cleanup(cancel)
	return ctx
}

// Must ends the test on an error.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
