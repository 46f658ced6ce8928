package hostile

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"tensorturn/broker/wire"
	"tensorturn/test/hostile/pool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harm runs one cell and says what went wrong for the defenders, "" when nothing did.
func (w *world) harm(a attacker, c cell, more map[string]any) string {
	w.t.Helper()
	if w.known == "" {
		w.known = w.snapshot()
	}
	before, leaf := w.known, w.leafOfB()
	p, keep := a.line(w, c, more)
	defer func() { w.hangUp(a, p, keep) }()
	var got []message
	for _, s := range c.shots {
		p.publish(s.subject, s.reply, s.header, s.body)
		if !p.ping() { // cut for this shot; the next one deserves a try of its own
			rest, _ := p.take()
			got = append(got, rest...)
			p.close()
			p = a.ready(w, c, more)
			w.cuts++
		}
	}
	w.settle()
	var out []string
	if len(c.listen) > 0 {
		w.canary()
		w.known = "" // the hub itself has written
	} else if w.known = w.snapshot(); w.known != before {
		out = append(out, "changed:\n"+difference(before, w.known))
	}
	if now := w.leafOfB(); now != leaf {
		out = append(out, "cut: "+leaf+" became "+now)
	}
	p.ping()
	rest, _ := p.take()
	got = append(got, rest...)
	for _, s := range w.leaked(got) {
		out = append(out, "read: "+s)
	}
	for _, s := range w.misheard() {
		out = append(out, "heard in another's name: "+s)
	}
	for _, s := range w.misled() {
		out = append(out, "b was sent: "+s)
	}
	return strings.Join(out, "\n")
}

// ready is a fresh connection that listens to what the cell says.
func (a attacker) ready(w *world, c cell, more map[string]any) speaker {
	w.t.Helper()
	p := a.dial(w, more)
	p.subscribe(inbox, "")
	for _, l := range c.listen {
		subject, queue, _ := strings.Cut(l, " ")
		p.subscribe(subject, queue)
	}
	p.ping()
	return p
}

// line is the attacker's open connection where a cell only publishes, else a fresh one: a listener must not hear for the
// next cell. keep tells which.
func (a attacker) line(w *world, c cell, more map[string]any) (p speaker, keep bool) {
	w.t.Helper()
	if len(c.listen) > 0 || more != nil {
		return a.ready(w, c, more), false
	}
	if p, ok := w.lines[a.name]; ok && p.ping() {
		return p, true
	}
	return a.ready(w, c, nil), true
}

func (w *world) hangUp(a attacker, p speaker, keep bool) {
	if keep {
		w.lines[a.name] = p
		return
	}
	p.close()
}

// misled drains what b was sent that did not come from the hub.
func (w *world) misled() []string {
	var out []string
	for _, sub := range []*nats.Subscription{w.wakes, w.asks} {
		for m, err := sub.NextMsg(100 * time.Microsecond); err == nil; m, err = sub.NextMsg(100 * time.Microsecond) {
			if !strings.HasPrefix(string(m.Data), "canary") {
				out = append(out, string(m.Data))
			}
		}
	}
	return out
}

func difference(before, after string) string {
	var out []string
	was := strings.Split(before, "\n")
	for i, line := range strings.Split(after, "\n") {
		if i >= len(was) || line != was[i] {
			out = append(out, "  is "+line)
			if i < len(was) {
				out = append(out, "  was "+was[i])
			}
		}
	}
	return strings.Join(out, "\n")
}

// TestNothingForeignIsReadWrittenOrCut is the matrix.
func TestNothingForeignIsReadWrittenOrCut(t *testing.T) {
	w := newWorld(t, asShipped)
	cells := 0
	for _, a := range attackers {
		for _, group := range []func(*world) []cell{listening, publishing, acknowledgements, replies, headers} {
			for _, c := range group(w) {
				cells++
				if h := w.harm(a, c, nil); h != "" {
					t.Errorf("%s: %s:\n%s", a.name, c.name, h)
				}
			}
		}
	}
	for _, f := range w.foreign() {
		t.Errorf("stored by somebody else: %s", f)
	}
	if _, err := pool.Sync(w.ctx(), w.leafB.Conn(), "canary last"); err != nil {
		t.Errorf("b no longer reaches the hub: %v", err)
	}
	t.Logf("%d cells, %d shots cost the attacker its own connection", cells, w.cuts)
}

// TestNameEviction: a leafnode that calls itself what b's leaf is called must not close b's link.
func TestNameEviction(t *testing.T) {
	w := newWorld(t, asShipped)
	for _, a := range attackers[2:] {
		if h := w.harm(a, cell{name: "take b's name", listen: []string{wire.LocalWake}}, w.likeB()); h != "" {
			t.Errorf("%s:\n%s", a.name, h)
		}
	}
}

// likeB is what b's leafnode says of itself in CONNECT: what the server compares to find a duplicate.
func (w *world) likeB() map[string]any {
	w.t.Helper()
	w.leafOfB()
	return map[string]any{"name": w.nameB, "cluster": w.nameB, "remote_account": "$G"}
}
