package embedded_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"tensorturn/broker/embedded"
	"tensorturn/broker/identity"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/test/hostile/pool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// TestSyncAndWake is the path of one request and one hint over a real wss leafnode.
func TestSyncAndWake(t *testing.T) {
	p := pool.New(t)
	a, b := p.Enrol("a", time.Hour), p.Enrol("b", time.Hour)
	svc := p.Serve(nil)
	la, lb := p.StartLeaf(a), p.StartLeaf(b)
	ctx := pool.Context(t, patience)

	for _, c := range []struct {
		leaf *embedded.Leaf
		acc  string
	}{{la, a.Account}, {lb, b.Account}} {
		got, err := pool.Sync(ctx, c.leaf.Conn(), "hello")
		pool.Must(t, err)
		if got != pool.Answer+c.acc {
			t.Errorf("answer %q does not name account %s: the subject must carry the caller's own", got, c.acc)
		}
	}

	wakes := subscribe(t, la.Conn(), wire.LocalWake)
	waitWake(t, ctx, svc, a.Account, wakes, "go a")
	pool.Must(t, svc.Publish(wire.WakeSubject(b.Account), []byte("go b")))
	pool.Must(t, svc.Publish(wire.WakeSubject(a.Account), []byte("again a")))
	m, err := wakes.NextMsgWithContext(ctx)
	pool.Must(t, err)
	for string(m.Data) == "go a" { // repeats of waitWake
		m, err = wakes.NextMsgWithContext(ctx)
		pool.Must(t, err)
	}
	if string(m.Data) != "again a" {
		t.Errorf("machine a was given %q", m.Data)
	}
}

func TestLeafSettings(t *testing.T) {
	p := pool.New(t)
	m := p.Enrol("a", time.Hour)
	p.StartLeaf(m)
	leafs, err := p.Hub.Leafs()
	pool.Must(t, err)
	if len(leafs) != 1 || leafs[0].Account != m.Account || !leafs[0].Isolated || leafs[0].Coded != "off" {
		t.Fatalf("leafs = %+v, want one isolated leaf of %s without compression", leafs, m.Account)
	}
}

func TestHubRestartHeals(t *testing.T) {
	p := pool.New(t)
	m := p.Enrol("a", time.Hour)
	p.Serve(nil)
	l := p.StartLeaf(m)
	wakes := subscribe(t, l.Conn(), wire.LocalWake)
	p.RestartHub()
	svc := p.Serve(nil)
	ctx := pool.Context(t, patience)
	got, err := pool.Sync(ctx, l.Conn(), "after restart")
	pool.Must(t, err)
	if got != pool.Answer+m.Account {
		t.Errorf("answer %q", got)
	}
	waitWake(t, ctx, svc, m.Account, wakes, "after restart")
}

// A server that is started anew under running clients: they and the leafnodes come back by themselves, on the same port, and
// a machine that was revoked before stays out.
func TestRecycleHeals(t *testing.T) {
	p := pool.New(t)
	m := p.Enrol("a", time.Hour)
	svc := p.Serve(nil)
	l := p.StartLeaf(m)
	wakes := subscribe(t, l.Conn(), wire.LocalWake)
	ctx := pool.Context(t, patience)
	_, err := pool.Sync(ctx, l.Conn(), "before")
	pool.Must(t, err)
	addr := p.Hub.WebsocketAddr()
	for range 3 {
		pool.Must(t, p.Hub.Recycle(ctx))
		if got := p.Hub.WebsocketAddr(); got != addr {
			t.Fatalf("the front's address was %s and is %s", addr, got)
		}
		got, err := pool.Sync(ctx, l.Conn(), "after")
		pool.Must(t, err)
		if got != pool.Answer+m.Account {
			t.Errorf("answer %q", got)
		}
		waitWake(t, ctx, svc, m.Account, wakes, "after")
	}
	if why := p.Hub.Broken(); why != "" {
		t.Errorf("broken: %s", why)
	}
}

func TestRevocationCutsWithinTwoSeconds(t *testing.T) {
	p := pool.New(t)
	a, b := p.Enrol("a", time.Hour), p.Enrol("b", time.Hour)
	p.Serve(nil)
	la, lb := p.StartLeaf(a), p.StartLeaf(b)
	before := leafID(t, p, b.Account)

	revoked, err := p.Keys.RevokedAccount(a.Machine, time.Now())
	pool.Must(t, err)
	start := time.Now()
	pool.Must(t, p.Hub.RevokeMachine(revoked))
	took := time.Since(start)
	if n := leafID(t, p, a.Account); n != 0 {
		t.Errorf("the revoked machine's leaf %d is still connected", n)
	}
	if took > 2*time.Second {
		t.Errorf("revocation took %s", took)
	}
	t.Logf("revocation took %s", took)

	// A credential issued after the revocation does not help: the account lets nobody in.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for v := (identity.Validity{}); v.Issued.Unix() <= start.Unix(); <-tick.C {
		p.Renew(a, time.Hour) // until the whole second of the revocation is over
		v, err = identity.ReadValidity(a.CurrentCredential())
		pool.Must(t, err)
	}
	from := len(p.Lines.String())
	pool.Must(t, p.Lines.WaitFrom(pool.Context(t, patience), from, "maximum account active connections exceeded"))
	if la.Connected() && leafID(t, p, a.Account) != 0 {
		t.Error("the revoked machine came back")
	}
	if after := leafID(t, p, b.Account); after != before {
		t.Errorf("the other machine's leaf was %d and is %d: it was cut", before, after)
	}
	if _, err := pool.Sync(pool.Context(t, patience), lb.Conn(), "still here"); err != nil {
		t.Error(err)
	}
}

func TestExpiredCredentialThenFreshOne(t *testing.T) {
	p := pool.New(t)
	m := p.Enrol("a", 2*time.Second)
	p.Serve(nil)
	l := p.StartLeaf(m)
	ctx := pool.Context(t, patience)
	_, err := pool.Sync(ctx, l.Conn(), "before")
	pool.Must(t, err)
	first := leafID(t, p, m.Account)
	waitLog(t, p, "Authentication Expired")
	p.Renew(m, time.Hour)
	got, err := pool.Sync(ctx, l.Conn(), "after")
	pool.Must(t, err)
	if got != pool.Answer+m.Account {
		t.Errorf("answer %q", got)
	}
	if again := leafID(t, p, m.Account); again == first || again == 0 {
		t.Errorf("leaf %d after expiry, %d before: it never was cut", again, first)
	}
}

// TestEqualNamesDoNotEvict: the hub closes the older of two leafs with one server name in one account.
func TestEqualNamesDoNotEvict(t *testing.T) {
	p := pool.New(t)
	a, b := p.Enrol("a", time.Hour), p.Enrol("b", time.Hour)
	p.Serve(nil)
	var leafs []*embedded.Leaf
	for _, m := range []*pool.Machine{a, a, b} {
		o := p.LeafOptions(m)
		o.Name = "same"
		l, err := embedded.StartLeaf(context.Background(), o)
		pool.Must(t, err)
		t.Cleanup(l.Shutdown)
		pool.Must(t, l.WaitConnected(pool.Context(t, patience)))
		leafs = append(leafs, l)
	}
	for i, l := range leafs {
		if _, err := pool.Sync(pool.Context(t, patience), l.Conn(), "hello"); err != nil {
			t.Errorf("leaf %d: %v", i, err)
		}
	}
	z, err := p.Hub.Leafs()
	pool.Must(t, err)
	if len(z) != 3 || z[0].ID >= z[1].ID {
		t.Errorf("leafs = %+v, want the same three", z)
	}
}

// TestThirdLeafIsRefused is the limit MachineLeafs.
func TestThirdLeafIsRefused(t *testing.T) {
	p := pool.New(t)
	m := p.Enrol("a", time.Hour)
	p.StartLeaf(m)
	p.StartLeaf(m)
	l, err := embedded.StartLeaf(context.Background(), p.LeafOptions(m))
	pool.Must(t, err)
	t.Cleanup(l.Shutdown)
	waitLog(t, p, "maximum account active connections exceeded")
	z, err := p.Hub.Leafs()
	pool.Must(t, err)
	if len(z) != 2 {
		t.Errorf("%d leafs of one machine, want 2", len(z))
	}
}

func TestSecondHubIsRefused(t *testing.T) {
	p := pool.New(t)
	o, err := p.HubOptions()
	pool.Must(t, err)
	_, err = embedded.StartHub(context.Background(), o)
	if domain.KindOf(err) != domain.KindConflict || domain.NextOf(err) == "" {
		t.Fatalf("second hub: %v (next %q)", err, domain.NextOf(err))
	}
	pool.Must(t, p.Hub.Shutdown())
	pool.Must(t, p.Hub.Shutdown()) // twice is once
	p.StartHub()                   // and the directory is free again
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	p := pool.New(t)
	o, err := p.HubOptions()
	pool.Must(t, err)
	pool.Must(t, p.Hub.Shutdown())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if h, err := embedded.StartHub(ctx, o); err == nil {
		t.Error("a cancelled start succeeded")
		_ = h.Shutdown()
	}
	p.StartHub()
}

func subscribe(t *testing.T, nc *nats.Conn, subject string) *nats.Subscription {
	t.Helper()
	s, err := nc.SubscribeSync(subject)
	pool.Must(t, err)
	pool.Must(t, nc.Flush())
	return s
}

// waitWake hints until one arrives: interest travels to the hub behind the subscription.
func waitWake(t *testing.T, ctx context.Context, svc *nats.Conn, account string, sub *nats.Subscription, body string) {
	t.Helper()
	for ctx.Err() == nil {
		pool.Must(t, svc.Publish(wire.WakeSubject(account), []byte(body)))
		m, err := sub.NextMsg(50 * time.Millisecond)
		if err == nil && string(m.Data) == body {
			return
		}
	}
	t.Fatal("no wake arrived")
}

func leafID(t *testing.T, p *pool.Pool, account string) uint64 {
	t.Helper()
	z, err := p.Hub.Leafs()
	pool.Must(t, err)
	for _, l := range z {
		if l.Account == account {
			return l.ID
		}
	}
	return 0
}

// waitLog waits until a server has logged one of the texts.
func waitLog(t *testing.T, p *pool.Pool, texts ...string) {
	t.Helper()
	pool.Must(t, p.Lines.Wait(pool.Context(t, patience), texts...))
}
