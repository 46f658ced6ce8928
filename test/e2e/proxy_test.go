package e2e

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"tensorturn/test/kit"
)

// connectProxy is an HTTP proxy that wants a password, opens tunnels to one name alone, which nobody else can resolve, and counts.
type connectProxy struct {
	name, real string // host:port as it is asked for, and where that is
	url        string

	mu                sync.Mutex
	opened, forbidden int
	up                int64 // bytes to the hub
}

const proxyPassword = "p@ss word"

func newConnectProxy(t *testing.T, name, real string) *connectProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &connectProxy{name: name, real: real}
	p.url = (&url.URL{Scheme: "http", User: url.UserPassword("user", proxyPassword), Host: l.Addr().String()}).String()
	var work sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); work.Wait() })
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { p.serve(c) })
		}
	})
	return p
}

func (p *connectProxy) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	asked := http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	user, password, _ := asked.BasicAuth()
	status := http.StatusOK
	switch {
	case user != "user" || password != proxyPassword:
		status = http.StatusProxyAuthRequired
	case r.Method != http.MethodConnect || r.Host != p.name:
		status = http.StatusForbidden
	}
	p.mu.Lock()
	if status == http.StatusOK {
		p.opened++
	} else {
		p.forbidden++
	}
	p.mu.Unlock()
	if err := (&http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1}).Write(c); err != nil || status != http.StatusOK {
		return
	}
	hub, err := net.Dial("tcp", p.real)
	if err != nil {
		return
	}
	defer hub.Close()
	var ways sync.WaitGroup
	ways.Go(func() {
		n, _ := io.Copy(hub, in)
		p.mu.Lock()
		p.up += n
		p.mu.Unlock()
		_ = hub.Close()
	})
	ways.Go(func() { _, _ = io.Copy(c, hub); _ = c.Close() })
	ways.Wait()
}

// counts gives how many tunnels were opened and refused.
func (p *connectProxy) counts() (opened, forbidden int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened, p.forbidden
}

// A machine in an office whose firewall lets nothing out but what goes through a proxy with a password: it joins, its link comes up, and
// it trains a run, through the proxy alone. The direct way is blocked: the hub's name means nothing outside of the proxy.
func TestThroughAConnectProxy(t *testing.T) {
	t.Parallel()
	p := kit.NewPool(t, binary, lease)
	p.StartHub() // once under its address, by which this test looks at it
	token := p.Must("token", "create", "--uses", "3")
	at := strings.TrimPrefix(p.URL, "https://")
	const name = "hub.tensorturn.test:7443"
	p.Hub.Stop(kit.Patience)
	p.StartHub("--public-url", "https://"+name)
	px := newConnectProxy(t, name, at)
	join := func(dir string, env ...string) *kit.Process {
		return p.SpawnWith("join-"+dir, env, "agent", "join", "https://"+name, "--token", token, "--dir", p.AgentDir(dir), "--name", dir)
	}
	doctor := func(env ...string) string {
		pr := p.SpawnWith("doctor", env, "doctor", "--dir", p.AgentDir("nobody"), "--hub", "https://"+name, "--token", token)
		pr.Exit(kit.Patience)
		return pr.Output()
	}
	if code := join("direct").Exit(kit.Patience); code != 5 {
		t.Fatalf("the direct way is open: exit code %d", code)
	}
	if said := doctor(); !strings.Contains(said, "problem  hub-name-unknown") {
		t.Errorf("doctor without proxy:\n%s", said)
	}
	if code := join("exempt", "HTTPS_PROXY="+px.url, "NO_PROXY=hub.tensorturn.test").Exit(kit.Patience); code != 5 {
		t.Errorf("NO_PROXY is not honoured: exit code %d", code)
	}
	if opened, forbidden := px.counts(); opened+forbidden != 0 {
		t.Fatalf("the proxy was used %d times by those who were told of none", opened+forbidden)
	}
	wrong := strings.Replace(px.url, "user", "nobody", 1)
	if code := join("wrong", "HTTPS_PROXY="+wrong).Exit(kit.Patience); code != 5 {
		t.Errorf("with a wrong password: exit code %d", code)
	}
	if said := doctor("HTTPS_PROXY=" + wrong); !strings.Contains(said, "problem  proxy-refuses") {
		t.Errorf("doctor with a wrong password:\n%s", said)
	}
	if opened, forbidden := px.counts(); opened != 0 || forbidden == 0 {
		t.Fatalf("%d tunnels without the password, %d refusals", opened, forbidden)
	}

	p.Env = []string{"HTTPS_PROXY=" + px.url}
	if said := doctor(); !strings.Contains(said, "nothing hinders this machine") || !strings.Contains(said, "the token is good") {
		t.Errorf("doctor through the proxy:\n%s", said)
	}
	if code := join("office").Exit(kit.Patience); code != 0 {
		t.Fatalf("join through the proxy: exit code %d", code)
	}
	joined, _ := px.counts()
	agent := p.SpawnAgent("office")
	p.AwaitMachine("office", "online")
	linked, _ := px.counts()
	if joined == 0 || linked <= joined {
		t.Errorf("%d tunnels after the join, %d with the link", joined, linked)
	}
	id := p.Submit(spec(t, "model: {kind: mlp, hidden: [32]}\nbatch: 32\nepochs: 2\nchunk: 64\nround: {chunks: 46}\n"))
	checkRun(t, p, p.AwaitEnd(id))
	if code := agent.Stop(time.Minute); code != 0 {
		t.Errorf("the agent ended with %d", code)
	}
	p.Hub.Stop(kit.Patience)
	px.mu.Lock()
	defer px.mu.Unlock()
	t.Logf("%d tunnels, %d refused, %d bytes up", px.opened, px.forbidden, px.up)
	if px.up < 10<<10 {
		t.Errorf("only %d bytes went up through the proxy: deltas went elsewhere", px.up)
	}
}
