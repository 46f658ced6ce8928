package hostile

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"tensorturn/broker/identity"
)

// speaker is an attacker's connection.
type speaker interface {
	publish(subject, reply, header, body string)
	subscribe(subject, queue string)
	// ping waits until the server has handled everything sent; false: the connection is gone.
	ping() bool
	take() (got []message, errs []string)
	close()
}

// attacker is a way of speaking with machine a's credential.
type attacker struct {
	name  string
	stock bool // nats.go
	leaf  bool
	// boast adds claims to CONNECT that a leafnode may make about itself.
	boast func(w *world) map[string]any
}

// attackers are the four ways in. The boasting leaf says that it is the hub, has JetStream in the hub's domain and
// stands for the hub's account: each of these switches a check of the server off or on.
var attackers = []attacker{
	{name: "stock client", stock: true},
	{name: "raw client", boast: func(*world) map[string]any {
		return map[string]any{"name": "hub", "pedantic": false}
	}},
	{name: "raw leaf", leaf: true, boast: func(*world) map[string]any { return map[string]any{"name": "evil"} }},
	{name: "boasting leaf", leaf: true, boast: func(w *world) map[string]any {
		return map[string]any{
			"name": "evil", "is_hub": true, "jetstream": true, "domain": "hub", "cluster": "evil",
			"remote_account": w.p.Keys.PublicAccount(identity.RoleHub), "server_id": "hub",
		}
	}},
}

// dial connects until the server lets it in: the previous cell's connection may still count against the account.
func (a attacker) dial(w *world, more map[string]any) speaker {
	w.t.Helper()
	ctx := w.ctx()
	for {
		s, err := a.try(w, more)
		if err == nil && s.ping() {
			s.take()
			return s
		}
		if s != nil {
			_, errs := s.take()
			err = fmt.Errorf("the server says %q", errs)
			s.close()
		}
		if ctx.Err() != nil {
			w.t.Fatalf("%s was not let in: %v", a.name, err)
		}
	}
}

func (a attacker) try(w *world, more map[string]any) (speaker, error) {
	if a.stock {
		return dialStock(w)
	}
	fields := map[string]any{}
	if a.boast != nil {
		maps.Copy(fields, a.boast(w))
	}
	maps.Copy(fields, more)
	return dialPeer(w.t, w.p.URL, w.p.Keys.CA(), w.a.CurrentCredential(), w.a.Agent.Key(), a.leaf, fields), nil
}

// stockPeer is nats.go.
type stockPeer struct {
	nc *nats.Conn

	mu   sync.Mutex
	subs []*nats.Subscription
	errs []string
}

func dialStock(w *world) (speaker, error) {
	trust, err := identity.TrustTLS(w.p.Keys.CA())
	if err != nil {
		return nil, err
	}
	p := &stockPeer{}
	p.nc, err = nats.Connect(strings.Replace(w.p.URL, "https://", "wss://", 1), nats.ProxyPath("/nats"), nats.Secure(trust),
		nats.UserJWT(w.a.User().JWT, w.a.User().Sign), nats.NoReconnect(), nats.Timeout(5*time.Second),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.errs = append(p.errs, err.Error())
		}))
	if err != nil {
		return nil, err
	}
	w.t.Cleanup(p.close)
	return p, nil
}

func (p *stockPeer) publish(subject, reply, header, body string) {
	m := &nats.Msg{Subject: subject, Reply: reply, Data: []byte(body), Header: nats.Header{}}
	for line := range strings.SplitSeq(header, "\r\n") {
		if k, v, ok := strings.Cut(line, ": "); ok {
			m.Header[k] = append(m.Header[k], v)
		}
	}
	if err := p.nc.PublishMsg(m); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.errs = append(p.errs, fmt.Sprintf("client refuses %s: %v", subject, err))
	}
}

// subscribe keeps the deliveries inside the subscription: what was sent before a ping is there when the ping returns,
// which a callback on its own goroutine would not promise.
func (p *stockPeer) subscribe(subject, queue string) {
	var sub *nats.Subscription
	var err error
	if queue == "" {
		sub, err = p.nc.SubscribeSync(subject)
	} else {
		sub, err = p.nc.QueueSubscribeSync(subject, queue)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.errs = append(p.errs, err.Error())
		return
	}
	p.subs = append(p.subs, sub)
}

func (p *stockPeer) ping() bool { return p.nc.FlushTimeout(10*time.Second) == nil }

func (p *stockPeer) take() ([]message, []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var got []message
	for _, sub := range p.subs {
		for n, _, err := sub.Pending(); err == nil && n > 0; n, _, err = sub.Pending() {
			m, err := sub.NextMsg(time.Second)
			if err != nil {
				break
			}
			got = append(got, message{subject: m.Subject, reply: m.Reply, header: fmt.Sprint(m.Header), body: string(m.Data)})
		}
	}
	errs := p.errs
	p.errs = nil
	return got, errs
}

func (p *stockPeer) close() { p.nc.Close() }
