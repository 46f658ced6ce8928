package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"tensorturn/broker/wire"
	"tensorturn/test/hostile/pool"
)

// A sync crosses a real wss leafnode, a wake comes back, and a leafnode that brings no answers is made anew.
func TestLeaf(t *testing.T) {
	p := pool.New(t)
	m := p.Enrol("a", time.Hour)
	svc := p.Serve(nil)
	ctx := pool.Context(t, 30*time.Second)
	l, err := startLeaf(ctx, p.LeafOptions(m), 20*time.Millisecond, 2*time.Second)
	pool.Must(t, err)
	defer l.Close()
	woken := make(chan struct{}, 1)
	l.OnWake(func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	wait := func(what string) {
		t.Helper()
		select {
		case <-woken:
		case <-ctx.Done():
			t.Fatal("no wake " + what)
		}
	}
	wait("when the link came up")
	if !l.Connected() {
		t.Error("not connected after the link came up")
	}
	ask := func() error {
		answer, err := l.Sync(ctx, []byte("hello"))
		if err == nil && string(answer) != pool.Answer+m.Account {
			t.Errorf("answer %q", answer)
		}
		return err
	}
	for ask() != nil { // interest spreads behind the link
		pool.Must(t, ctx.Err())
	}
	drain := func() {
		select {
		case <-woken:
		default:
		}
	}
	drain()
	pool.Must(t, svc.Publish(wire.WakeSubject(m.Account), []byte("go")))
	wait("from the hub")

	before := l.leaf
	l.mu.Lock()
	l.answered = time.Now().Add(-time.Hour)
	l.mu.Unlock()
	drain()
	wait("from the new leafnode")
	l.mu.Lock()
	anew := l.leaf != before
	l.mu.Unlock()
	if !anew {
		t.Error("the silent leafnode was not replaced")
	}
	for ask() != nil {
		pool.Must(t, ctx.Err())
	}
}

// A sync whose link is lost ends with it, long before its time is over: its answer has no way back.
func TestLostLinkEndsASync(t *testing.T) {
	p := pool.New(t)
	m := p.Enrol("a", time.Hour)
	ctx := pool.Context(t, 30*time.Second)
	l, err := startLeaf(ctx, p.LeafOptions(m), 20*time.Millisecond, time.Hour)
	pool.Must(t, err)
	defer l.Close()
	svc, err := p.Hub.ServiceConn("service")
	pool.Must(t, err)
	heard := make(chan struct{}, 1)
	_, err = svc.Subscribe(wire.SyncSubjects, func(*nats.Msg) { heard <- struct{}{} }) // and never answers
	pool.Must(t, err)
	pool.Must(t, svc.Flush())
	said := make(chan error)
	go func() {
		for { // until interest has spread behind the link
			if _, err := l.Sync(ctx, []byte("hello")); err == nil || !strings.Contains(err.Error(), "there is no link") {
				said <- err
				return
			}
		}
	}()
	<-heard
	p.RestartHub()
	if err := <-said; err == nil || !strings.Contains(err.Error(), "the link was lost") {
		t.Errorf("the sync ended with %v", err)
	}
}

// The hub hears at once whose link has been closed.
func TestHubHearsOfClosedLinks(t *testing.T) {
	p := pool.New(t)
	a, b := p.Enrol("a", time.Hour), p.Enrol("b", time.Hour)
	gone := make(chan string, 16)
	pool.Must(t, p.Hub.WatchLinks(func(account string) { gone <- account }))
	ctx := pool.Context(t, 30*time.Second)
	for _, m := range []*pool.Machine{a, b} {
		l, err := startLeaf(ctx, p.LeafOptions(m), 20*time.Millisecond, time.Hour)
		pool.Must(t, err)
		pool.Must(t, l.leaf.WaitConnected(ctx))
		l.Close()
		for heard := ""; heard != m.Account; {
			select {
			case heard = <-gone:
			case <-ctx.Done():
				t.Fatal("nobody said that the link was closed")
			}
		}
	}
}
