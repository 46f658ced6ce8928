package serving

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"tensorturn/test/kit"
)

// load asks a model without pause until stop, and counts answers by the members that were used, 0 for a single model.
type load struct {
	t    *testing.T
	all  sync.WaitGroup
	end  atomic.Bool
	used [16]atomic.Int64
	lost atomic.Int64
}

func startLoad(t *testing.T, p *kit.Pool, model string, askers int) *load {
	t.Helper()
	x, _ := rows(t, 1)
	body := oneRow(x)
	_, key := newKey(t, p, model, "--rate", "100000/s")
	l := &load{t: t}
	for range askers {
		a := newAsker(t, p, key)
		l.all.Go(func() {
			for !l.end.Load() {
				s, err := a.send(http.MethodPost, "/v2/models/"+model+"/infer", body)
				if err != nil || s.Code != 200 {
					l.lost.Add(1)
					t.Errorf("a request failed: %d %s %v", s.Code, s.Error, err)
					return
				}
				n, _ := s.Parameters["members_used"].(float64)
				l.used[int(n)].Add(1)
			}
		})
	}
	t.Cleanup(l.stop)
	return l
}

func (l *load) stop() {
	l.end.Store(true)
	l.all.Wait()
}

// more waits for some more answers of so many members.
func (l *load) more(p *kit.Pool, members int) {
	l.t.Helper()
	n := l.used[members].Load()
	p.Await("answers", func() bool { return l.used[members].Load() >= n+20 || l.t.Failed() })
}

// pool of three agents, and a run of the spec that has ended.
func threeAgents(t *testing.T) (*kit.Pool, map[string]*kit.Process) {
	t.Helper()
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	agents := map[string]*kit.Process{}
	for _, name := range []string{"one", "two", "three"} {
		agents[name] = p.StartAgent(name)
	}
	return p, agents
}

// Each of three agents holds one member; one is killed under load. No request fails, the answers say one member fewer, and
// when another agent has taken the member, all of them again.
func TestAgentWithAMemberIsKilled(t *testing.T) {
	p, agents := threeAgents(t)
	id := p.Submit(spec(t, 3, "mode: ensemble\nensemble: {members: 3}\n"))
	p.AwaitEnd(id)
	if out := p.Run("model", "deploy", string(id), "--name", "voters", "--on", "agents", "--copies", "1"); out.Code != 0 || !strings.Contains(out.Err, "on the agents") {
		t.Fatalf("%d\n%s%s", out.Code, out.Out, out.Err)
	}
	_, key := newKey(t, p, "voters")
	x, labels := rows(t, 200)
	if acc, s := accuracy(t, newAsker(t, p, key), "voters", x, labels); acc < 0.8 || s.Parameters["members_used"] != 3.0 {
		t.Errorf("accuracy %.3f, %v", acc, s.Parameters)
	}
	l := startLoad(t, p, "voters", 4)
	l.more(p, 3)
	agents["two"].Kill()
	l.more(p, 2)
	l.more(p, 3)
	l.stop()
	if n := l.used[0].Load() + l.used[1].Load(); n > 0 {
		t.Errorf("%d answers of one member or none: the others hold theirs", n)
	}
	t.Logf("%d answers of three members, %d of two, %d lost", l.used[3].Load(), l.used[2].Load(), l.lost.Load())
}

// An agent that hangs, with its link open and nothing said, costs no request: another is asked. And more rows than one message
// carries come back in order.
func TestAgentHangs(t *testing.T) {
	p, agents := threeAgents(t)
	id := p.Submit(spec(t, 1, "round: {chunks: 24}\n"))
	p.AwaitEnd(id)
	p.Must("model", "deploy", string(id), "--name", "digits", "--on", "agents")
	l := startLoad(t, p, "digits", 4)
	l.more(p, 0)
	for _, name := range []string{"one", "two"} {
		agents[name].Signal(syscall.SIGSTOP)
		l.more(p, 0)
		agents[name].Signal(syscall.SIGCONT)
		l.more(p, 0)
	}
	l.stop()
	_, key := newKey(t, p, "digits")
	x, labels := rows(t, 1300)
	for len(x) < 3900 { // 1 MB: three messages
		x, labels = append(x, x[:1300]...), append(labels, labels[:1300]...)
	}
	if acc, _ := accuracy(t, newAsker(t, p, key), "digits", x, labels); acc < 0.85 {
		t.Errorf("accuracy %.3f over %d rows", acc, len(x))
	}
	t.Logf("%d answers, %d lost", l.used[0].Load(), l.lost.Load())
}

// A model on two of three agents, under load: one of them is killed, one drains, a new version comes, the hub starts anew. No
// request fails, but while the hub is away.
func TestModelOnAgents(t *testing.T) {
	p, agents := threeAgents(t)
	first := p.Submit(spec(t, 1, "round: {chunks: 24}\n"))
	second := p.Submit(spec(t, 2, "round: {chunks: 24}\n"))
	p.AwaitEnd(first)
	p.AwaitEnd(second)
	p.Must("model", "deploy", string(first), "--name", "digits", "--on", "agents")
	l := startLoad(t, p, "digits", 4)
	l.more(p, 0)
	agents["one"].Kill()
	l.more(p, 0)
	p.Must("machine", "drain", "two")
	l.more(p, 0)
	p.Must("model", "deploy", string(second), "--name", "digits", "--on", "agents")
	l.more(p, 0)
	l.stop()

	p.Hub.Stop(kit.Patience)
	p.StartHub()
	_, key := newKey(t, p, "digits")
	x, labels := rows(t, 300)
	a := newAsker(t, p, key)
	p.Await("agents to be back", func() bool { s, err := a.infer("digits", x[:1]); return err == nil && s.Code == 200 })
	if acc, s := accuracy(t, a, "digits", x, labels); acc < 0.85 || s.Version != "2" {
		t.Errorf("accuracy %.3f of version %s", acc, s.Version)
	}
	p.Must("machine", "revoke", "three", "--yes")
	p.Must("machine", "resume", "two")
	p.Await("the model to move to the machine that is left", func() bool { s, err := a.infer("digits", x[:1]); return err == nil && s.Code == 200 })
	t.Logf("%d answers, %d lost", l.used[0].Load(), l.lost.Load())
}
