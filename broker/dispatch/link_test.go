package dispatch_test

import (
	"testing"
	"time"

	"tensorturn/broker/dispatch"
	"tensorturn/broker/wire"
	"tensorturn/test/hostile/pool"
)

// Over real leafnodes: a question reaches the machine it is for, an answer comes under the account of who sent it, and a question that
// nobody hears comes back at once.
func TestLink(t *testing.T) {
	p := pool.New(t)
	a, b := p.Enrol("a", time.Hour), p.Enrol("b", time.Hour)
	nc, err := p.Hub.ServiceConn("predictions")
	pool.Must(t, err)
	l := dispatch.NewLink(nc)
	type answer struct{ account, data string }
	answers, unreached := make(chan answer, 16), make(chan uint64, 64)
	pool.Must(t, l.Serve(func(account string, data []byte) { answers <- answer{account, string(data)} }, func(id uint64) { unreached <- id }))
	defer l.Close()
	ctx := pool.Context(t, 20*time.Second)

	pool.Must(t, l.Send(a.Account, 7, []byte("anybody?")))
	select {
	case id := <-unreached:
		if id != 7 {
			t.Errorf("question %d came back", id)
		}
	case <-ctx.Done():
		t.Fatal("nobody is there, and the question did not come back")
	}

	la, lb := p.StartLeaf(a), p.StartLeaf(b)
	asked, err := la.Conn().SubscribeSync(wire.LocalAsk)
	pool.Must(t, err)
	foreign, err := lb.Conn().SubscribeSync(wire.LocalAsk)
	pool.Must(t, err)
	pool.Must(t, lb.Conn().Flush())
	for id := uint64(8); ; id++ { // until the interest has reached the hub
		pool.Must(t, l.Send(a.Account, id, []byte("how much?")))
		if m, err := asked.NextMsg(100 * time.Millisecond); err == nil {
			if string(m.Data) != "how much?" {
				t.Errorf("a is asked %q", m.Data)
			}
			pool.Must(t, la.Conn().Publish(m.Reply, []byte("forged"))) // reaches nobody: no import covers it
			break
		}
		if ctx.Err() != nil {
			t.Fatal("a is not reached")
		}
	}
	for got := (answer{}); got.data != "this"; {
		pool.Must(t, la.Conn().Publish(wire.LocalAnswer, []byte("this")))
		select {
		case got = <-answers:
			if got.account != a.Account || got.data != "this" {
				t.Errorf("%q from %s, who is not %s", got.data, got.account, a.Account)
			}
		case <-time.After(100 * time.Millisecond):
		}
		if ctx.Err() != nil {
			t.Fatal("no answer reached the hub")
		}
	}
	if n, _, _ := foreign.Pending(); n > 0 {
		t.Error("b was asked what a was asked")
	}
}
