package kit

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Pool is a hub and its agents in one folder.
type Pool struct {
	Bin   string
	Dir   string
	URL   string // of the hub, the same over restarts
	Lease time.Duration
	Hub   *Process // newest, nil before StartHub
	Env   []string // added to the environment of every process
	Under []string // a command that every process is started under, such as a tracer

	tb     testing.TB
	key    string // operator key
	client *http.Client
	token  string
	told   map[string]bool // process names whose output is printed when the test has failed
}

// NewPool makes a pool without processes, with the lease time its hub will have.
func NewPool(tb testing.TB, bin string, lease time.Duration) *Pool {
	p := &Pool{Bin: bin, Dir: tb.TempDir(), Lease: lease, tb: tb, told: map[string]bool{}}
	tb.Cleanup(func() {
		if p.client != nil {
			p.client.CloseIdleConnections()
		}
	})
	return p
}

// HubDir is the hub's folder.
func (p *Pool) HubDir() string { return filepath.Join(p.Dir, "hub") }

// Context is the operator's file that the hub writes.
func (p *Pool) Context() string { return filepath.Join(p.HubDir(), "operator.json") }

// AgentDir is the folder of the machine with the name.
func (p *Pool) AgentDir(name string) string { return filepath.Join(p.Dir, "agents", name) }

// SpawnHub starts the hub, on the port it had before if it ran before, and does not wait for it.
func (p *Pool) SpawnHub(flags ...string) *Process {
	p.tb.Helper()
	listen := "127.0.0.1:0"
	if p.URL != "" {
		listen = strings.TrimPrefix(p.URL, "https://")
	}
	args := []string{"hub", "start", "--dir", p.HubDir(), "--listen", listen, "--lease", p.Lease.String(), "--log-level", "warn"}
	p.Hub = p.Spawn("hub", append(args, flags...)...)
	return p.Hub
}

// StartHub starts the hub and waits until it answers.
func (p *Pool) StartHub(flags ...string) *Process {
	p.tb.Helper()
	p.SpawnHub(flags...)
	p.AwaitHub()
	return p.Hub
}

// AwaitHub waits until the hub answers, be it to say that it is read-only.
func (p *Pool) AwaitHub() {
	p.tb.Helper()
	p.Await("the hub to answer", func() bool {
		select {
		case <-p.Hub.done:
			p.tb.Fatalf("the hub ended early: %v", p.Hub.err)
		default:
		}
		if p.client == nil && !p.open() {
			return false
		}
		resp, err := p.client.Get(p.URL + "/healthz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		state, err := io.ReadAll(io.LimitReader(resp.Body, 64))
		return err == nil && strings.TrimSpace(string(state)) != "starting"
	})
}

// open reads the operator's file once the hub has written it.
func (p *Pool) open() bool {
	b, err := os.ReadFile(p.Context())
	if err != nil {
		return false
	}
	var c struct{ URL, Key, CA string }
	if err := json.Unmarshal(b, &c); err != nil {
		p.tb.Fatalf("%s: %v", p.Context(), err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(c.CA)) {
		p.tb.Fatalf("%s: no CA in it", p.Context())
	}
	p.URL, p.key = c.URL, c.Key
	p.client = &http.Client{Timeout: Patience, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, DisableKeepAlives: true}}
	return true
}

// Await asks until yes says so, at most Patience long. It is for what has no event to wait for.
func (p *Pool) Await(what string, yes func() bool) {
	p.tb.Helper()
	const every = 25 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for began := time.Now(); !yes(); <-tick.C {
		if time.Since(began) > Patience {
			p.tb.Fatalf("waited %s for %s", Patience, what)
		}
	}
}

// Join makes a machine of the name a member of the pool.
func (p *Pool) Join(name string, flags ...string) {
	p.tb.Helper()
	p.JoinAt(p.URL, name, flags...)
}

// JoinAt is Join by another URL of the hub, such as a proxy's.
func (p *Pool) JoinAt(url, name string, flags ...string) {
	p.tb.Helper()
	if p.token == "" {
		p.token = p.Must("token", "create", "--uses", "64")
	}
	p.Must(append([]string{"agent", "join", url, "--token", p.token, "--dir", p.AgentDir(name), "--name", name}, flags...)...)
}

// SpawnAgent starts the agent of a machine that has joined.
func (p *Pool) SpawnAgent(name string, flags ...string) *Process {
	p.tb.Helper()
	args := []string{"agent", "start", "--dir", p.AgentDir(name), "--reconnect", "400ms", "--log-level", "warn", "--no-bench"}
	return p.Spawn(name, append(args, flags...)...)
}

// StartAgent joins, starts, and waits until the hub sees the machine.
func (p *Pool) StartAgent(name string, flags ...string) *Process {
	p.tb.Helper()
	p.Join(name)
	pr := p.SpawnAgent(name, flags...)
	p.AwaitMachine(name, "online")
	return pr
}
