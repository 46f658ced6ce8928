package hostile

import (
	"fmt"
	"strings"
	"testing"

	"tensorturn/broker/identity"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/test/hostile/pool"
)

// TestAttackersCanSpeak: the matrix would be green as well if its attackers were deaf and dumb. Each asks the hub what it
// may ask, is answered as a, and hears its own hint and nobody else's.
func TestAttackersCanSpeak(t *testing.T) {
	w := newWorld(t, asShipped)
	for _, a := range attackers {
		p := a.ready(w, cell{listen: []string{">"}}, nil)
		p.publish(wire.LocalSync, inbox, "", "attack hello")
		p.publish(wire.LocalAnswer, "", "", "attack answer")
		p.ping()
		w.settle()
		w.must(w.svc.Publish(wire.WakeSubject(w.b.Account), []byte("canary for b")))
		w.must(w.svc.Publish(wire.WakeSubject(w.a.Account), []byte("hint for a")))
		w.must(w.svc.Publish(wire.AskSubject(w.b.Account), []byte("canary for b")))
		w.must(w.svc.Publish(wire.AskSubject(w.a.Account), []byte("question for a")))
		w.settle()
		p.ping()
		got, errs := p.take()
		all := fmt.Sprint(got)
		if !strings.Contains(all, pool.Answer+w.a.Account) {
			t.Errorf("%s got no answer under its own account: %.300s %q", a.name, all, errs)
		}
		if !strings.Contains(all, "hint for a") || !strings.Contains(all, "question for a") || len(w.leaked(got)) > 0 {
			t.Errorf("%s should hear its own hint and question alone: %.300s", a.name, all)
		}
		if !w.heardFrom(w.a.Account, "attack answer") {
			t.Errorf("%s: its answer did not reach the hub under its own account", a.name)
		}
		p.close()
	}
	if heard := w.misheard(); len(heard) > 0 {
		t.Errorf("heard in another's name: %q", heard)
	}
}

// TestPayloadLimit: a message of the limit passes, one byte more costs the sender its own connection.
func TestPayloadLimit(t *testing.T) {
	w := newWorld(t, asShipped)
	for _, a := range attackers[1:3] {
		p := a.ready(w, cell{}, nil)
		p.publish(wire.LocalSync, inbox, "", "attack"+strings.Repeat("x", domain.MaxMessageBytes-6))
		if !p.ping() {
			t.Errorf("%s: a message of the limit was refused", a.name)
		}
		p.publish(wire.LocalSync, inbox, "", "attack"+strings.Repeat("x", domain.MaxMessageBytes-5))
		if p.ping() {
			t.Errorf("%s: a message above the limit passed", a.name)
		}
		p.close()
		w.settle()
		for _, h := range w.misheard() {
			t.Errorf("%s: heard in another's name: %.80s", a.name, h)
		}
	}
}

// TestSubscriptionLimit: one connection holds at most MachineSubs subscriptions.
func TestSubscriptionLimit(t *testing.T) {
	w := newWorld(t, asShipped)
	for _, a := range attackers[1:3] {
		p := a.ready(w, cell{}, nil) // one subscription: its inbox
		for i := range identity.MachineSubs - 1 {
			p.subscribe(fmt.Sprintf("s.%d", i), "")
		}
		p.ping()
		if _, errs := p.take(); len(errs) > 0 {
			t.Errorf("%s: refused below the limit: %q", a.name, errs)
		}
		p.subscribe("one.more", "")
		alive := p.ping()
		if _, errs := p.take(); alive && !strings.Contains(fmt.Sprint(errs), "maximum subscriptions exceeded") {
			t.Errorf("%s: subscription %d passed: %q", a.name, identity.MachineSubs+1, errs)
		}
		p.close()
	}
}

// TestConnectionLimit: an account holds at most MachineConns clients; the next is refused and the others live.
func TestConnectionLimit(t *testing.T) {
	w := newWorld(t, asShipped)
	var all []speaker
	for range identity.MachineConns {
		all = append(all, attackers[1].dial(w, nil))
	}
	p, err := attackers[1].try(w, nil)
	w.must(err)
	if p.ping() {
		t.Errorf("client %d was let in", identity.MachineConns+1)
	}
	if _, errs := p.take(); !strings.Contains(fmt.Sprint(errs), "maximum account active connections exceeded") {
		t.Errorf("refused with %q", errs)
	}
	for i, c := range all {
		if !c.ping() {
			t.Errorf("client %d was cut for the last one's sake", i)
		}
	}
}

// TestCredentialOnlyOpensWhatItSays: a credential shown by another key, or of another account's making, opens nothing.
func TestCredentialOnlyOpensWhatItSays(t *testing.T) {
	w := newWorld(t, asShipped)
	stolen := w.b.CurrentCredential() // seen on the wire, but without b's key
	for _, leaf := range []bool{false, true} {
		p := dialPeer(t, w.p.URL, w.p.Keys.CA(), stolen, w.a.Agent.Key(), leaf, nil)
		if p.ping() {
			t.Errorf("leaf %v: b's credential let a's key in", leaf)
		}
	}
	tok, kp, err := w.p.Keys.InProcess(identity.RoleHub)
	w.must(err)
	for _, leaf := range []bool{false, true} {
		p := dialPeer(t, w.p.URL, w.p.Keys.CA(), tok, kp, leaf, nil)
		if p.ping() {
			t.Errorf("leaf %v: a user of HUB came in from outside", leaf)
		}
	}
}
