package e2e

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"tensorturn/test/kit"
	"tensorturn/test/proxy"
)

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
	px := proxy.New(t, func(host string) (net.Conn, error) { // one name alone, which nobody else can resolve
		if host != name {
			return nil, proxy.Refusal(http.StatusForbidden)
		}
		return net.Dial("tcp", at)
	})
	through := px.URL.String()
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
	if code := join("exempt", "HTTPS_PROXY="+through, "NO_PROXY=hub.tensorturn.test").Exit(kit.Patience); code != 5 {
		t.Errorf("NO_PROXY is not honoured: exit code %d", code)
	}
	if opened, forbidden := px.Counts(); opened+forbidden != 0 {
		t.Fatalf("the proxy was used %d times by those who were told of none", opened+forbidden)
	}
	wrong := strings.Replace(through, "user", "nobody", 1)
	if code := join("wrong", "HTTPS_PROXY="+wrong).Exit(kit.Patience); code != 5 {
		t.Errorf("with a wrong password: exit code %d", code)
	}
	if said := doctor("HTTPS_PROXY=" + wrong); !strings.Contains(said, "problem  proxy-refuses") {
		t.Errorf("doctor with a wrong password:\n%s", said)
	}
	if opened, forbidden := px.Counts(); opened != 0 || forbidden == 0 {
		t.Fatalf("%d tunnels without the password, %d refusals", opened, forbidden)
	}

	p.Env = []string{"HTTPS_PROXY=" + through}
	if said := doctor(); !strings.Contains(said, "nothing hinders this machine") || !strings.Contains(said, "the token is good") {
		t.Errorf("doctor through the proxy:\n%s", said)
	}
	if code := join("office").Exit(kit.Patience); code != 0 {
		t.Fatalf("join through the proxy: exit code %d", code)
	}
	joined, _ := px.Counts()
	agent := p.SpawnAgent("office")
	p.AwaitMachine("office", "online")
	linked, _ := px.Counts()
	if joined == 0 || linked <= joined {
		t.Errorf("%d tunnels after the join, %d with the link", joined, linked)
	}
	id := p.Submit(spec(t, "model: {kind: mlp, hidden: [32]}\nbatch: 32\nepochs: 2\nchunk: 64\nround: {chunks: 46}\n"))
	checkRun(t, p, p.AwaitEnd(id))
	if code := agent.Stop(time.Minute); code != 0 {
		t.Errorf("the agent ended with %d", code)
	}
	p.Hub.Stop(kit.Patience)
	opened, forbidden := px.Counts()
	t.Logf("%d tunnels, %d refused, %d bytes up", opened, forbidden, px.Up())
	if px.Up() < 10<<10 {
		t.Errorf("only %d bytes went up through the proxy: deltas went elsewhere", px.Up())
	}
}
