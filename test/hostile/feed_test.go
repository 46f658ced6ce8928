package hostile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"tensorturn/broker"
	"tensorturn/broker/identity"
	"tensorturn/broker/jetstream"
	"tensorturn/broker/wire"
	"tensorturn/test/hostile/pool"
)

// feedShot is one message of an attack by observer a.
type feedShot struct{ name, subject, reply, header, body string }

// feedShots is the matrix: everything that was tried when the feed was designed, and its neighbours.
func feedShots(w *feedWorld) []feedShot {
	next, info := wire.FeedServices(w.a.Account)[0].Local, wire.FeedServices(w.a.Account)[1].Local
	const forged = "tt.v1.events.run.B.forged"
	out := []feedShot{
		{"answers aimed at the feed", next, forged, "", `{"batch":5,"no_wait":true}`},
		{"answers aimed at the log", next, "tt.ev.run.B.forged", "", `{"batch":5,"no_wait":true}`},
		{"info aimed at the feed", info, forged, "", ""},
		{"publish an event", forged, "", "", "{}"},
		{"publish a record", "tt.ev.run.B.forged", "", "", "{}"},
		{"status aimed at b's acknowledgement", next, w.held, "", `{"batch":100000}`},
		{"info aimed at b's acknowledgement", info, w.held, "", ""},
		{"trace of a pull", next, "_INBOX.x", "Nats-Trace-Dest: " + forged + "\r\n", `{"batch":1,"no_wait":true}`},
		{"next with an acknowledgement", strings.Replace(w.held, w.b.Account, w.a.Account, 1), forged, "", "+NXT"},
		{"b's next with an acknowledgement", w.held, "_INBOX.x", "", "+NXT"},
	}
	for _, verb := range []string{"", "+ACK", "-NAK", "+TERM", "+WPI"} {
		out = append(out, feedShot{"b's message acknowledged by " + verb, w.held, "", "", verb})
	}
	for _, subject := range []string{"tt.hb.machine", "$O.BLOBS.C.evil", "$O.BLOBS.M.evil", "tt.v1.from." + w.b.Account + ".sync", "tt.v1.to." + w.b.Account + ".wake"} {
		out = append(out, feedShot{"publish on " + subject, subject, "_INBOX.answer", "", "{}"}, feedShot{"answers aimed at " + subject, next, subject, "", `{"batch":5,"no_wait":true}`})
	}
	for _, verb := range []string{"SERVER.PING", "ACCOUNT." + w.b.Account + ".CONNZ", "ACCOUNT." + w.b.Account + ".CLAIMS.LOOKUP", "CLAIMS.LIST", "CLAIMS.UPDATE", "USER.INFO"} {
		out = append(out, feedShot{"ask the system for " + verb, "$SYS.REQ." + verb, "_INBOX.answer", "", "{}"})
	}
	for _, stream := range []string{"EVENTS", "HEARTBEATS", "OBJ_BLOBS"} {
		for _, api := range []string{"$JS.API", "$JS.hub.API", wire.FeedAPI} {
			for _, c := range []struct{ verb, body string }{{"STREAM.INFO." + stream, ""}, {"STREAM.PURGE." + stream, "{}"}, {"STREAM.MSG.GET." + stream, `{"seq":1}`}, {"DIRECT.GET." + stream, `{"seq":1}`},
				{"CONSUMER.CREATE." + stream, fmt.Sprintf(`{"stream_name":%q,"config":{"ack_policy":"none","deliver_subject":"evil.out"}}`, stream)}} {
				out = append(out, feedShot{"call " + api + "." + c.verb, api + "." + c.verb, "_INBOX.answer", "", c.body})
			}
		}
	}
	config := fmt.Sprintf(`{"stream_name":"FEED","config":{"durable_name":"evil","name":"evil","ack_policy":"none","deliver_subject":"evil.out","filter_subject":"%s"}}`, "tt.v1.events.run.B.>")
	for _, api := range []string{"$JS.API", "$JS.hub.API", wire.FeedAPI} {
		for _, c := range []struct{ verb, body string }{
			{"STREAM.INFO.FEED", ""}, {"STREAM.NAMES", ""}, {"STREAM.PURGE.FEED", "{}"}, {"STREAM.DELETE.FEED", ""}, {"STREAM.UPDATE.FEED", `{"name":"FEED","subjects":["evil"]}`},
			{"STREAM.CREATE.EVIL", `{"name":"EVIL","subjects":["evil"]}`}, {"STREAM.MSG.GET.FEED", `{"seq":2}`}, {"STREAM.MSG.DELETE.FEED", `{"seq":2}`},
			{"STREAM.SNAPSHOT.FEED", `{"deliver_subject":"evil.out"}`}, {"DIRECT.GET.FEED", `{"seq":2}`}, {"DIRECT.GET.FEED.tt.v1.events.run.B.made", ""},
			{"CONSUMER.CREATE.FEED", config}, {"CONSUMER.CREATE.FEED.evil.tt.v1.events.run.B.>", config}, {"CONSUMER.DURABLE.CREATE.FEED.evil", config},
			{"CONSUMER.INFO.FEED." + w.b.Account, ""}, {"CONSUMER.DELETE.FEED." + w.b.Account, ""}, {"CONSUMER.DELETE.FEED." + w.a.Account, ""},
			{"CONSUMER.PAUSE.FEED." + w.b.Account, `{"pause_until":"2030-01-01T00:00:00Z"}`}, {"CONSUMER.UNPIN.FEED." + w.b.Account, `{"group":"x"}`},
			{"CONSUMER.RESET.FEED." + w.b.Account, `{}`}, {"CONSUMER.MSG.NEXT.FEED." + w.b.Account, `{"batch":5,"no_wait":true}`}, {"INFO", ""},
		} {
			out = append(out, feedShot{"call " + api + "." + c.verb, api + "." + c.verb, "_INBOX.answer", "", c.body})
		}
	}
	return out
}

// fire shoots one message and gives the harm: what has changed, and what of b was read.
func (w *feedWorld) fire(p *peer, s feedShot) string {
	w.t.Helper()
	before := w.snapshot()
	p.publish(s.subject, s.reply, s.header, s.body)
	p.ping()
	w.must(w.hub.Flush())
	harm := difference(before, w.snapshot())
	got, _ := p.take()
	for _, m := range got {
		if strings.Contains(m.String(), secretB) || strings.Contains(m.String(), "c2VjcmV0") { // base64 of its beginning
			harm += "\nread: " + m.String()
		}
	}
	return harm
}

// TestObserverCanDoNothingElse fires the matrix with the credential as shipped and with one that lost its permissions.
func TestObserverCanDoNothingElse(t *testing.T) {
	w := newFeedWorld(t)
	before := w.snapshot()
	for name, cred := range map[string]string{"as shipped": w.a.cred, "without permissions": w.boundless(jwt.ConnectionTypeWebsocket)} {
		shots := feedShots(w)
		var p *peer
		cuts := -1 // of the attacker, by its own doing
		for _, s := range shots {
			if p == nil || !p.ping() {
				cuts++
				p = w.dial(cred, false)
				for _, listen := range []string{"_INBOX.>", ">", "evil.out", "tt.>", "$JS.>"} {
					p.subscribe(listen, "")
				}
			}
			h := w.fire(p, s)
			if h != "" {
				t.Errorf("%s: %s:\n%s", name, s.name, h)
			}
			t.Logf("%-20s %-60s harm: %t", name, s.name, h != "")
		}
		p.close()
		t.Logf("%s: %d shots, %d cost the attacker its own connection", name, len(shots), cuts)
	}
	if d := difference(before, w.snapshot()); d != "" { // what came late
		t.Errorf("after all shots:\n%s", d)
	}
	w.readsItsOwn(t, w.observer("c", "A")) // what a took in its attacks comes again only after a while
}

// TestControlFeedSnapshot writes into each stream as only the hub may: the matrix must see what it says does not happen.
func TestControlFeedSnapshot(t *testing.T) {
	w := newFeedWorld(t)
	for _, subject := range []string{"tt.v1.events.run.B.forged", "tt.ev.run.B.forged", "tt.hb.machine", "$O.BLOBS.M.evil"} {
		before := w.snapshot()
		_, err := w.hub.Request(subject, []byte("{}"), patience)
		w.must(err)
		if difference(before, w.snapshot()) == "" {
			t.Errorf("a message on %s is not seen", subject)
		}
	}
}

// readsItsOwn shows that after all this an observer of run A reads what it may, completely, and nothing else.
func (w *feedWorld) readsItsOwn(t *testing.T, o *watcher) {
	t.Helper()
	nc, js := w.stock(o)
	defer nc.Close()
	c, err := js.Consumer(w.ctx(), jetstream.FeedStream, o.Account)
	w.must(err)
	seen := map[string]bool{}
	deadline := time.Now().Add(patience)
	for len(seen) < 100 && time.Now().Before(deadline) {
		batch, err := c.Fetch(50, natsjs.FetchMaxWait(2*time.Second))
		w.must(err)
		for m := range batch.Messages() {
			if !strings.HasPrefix(m.Subject(), "tt.v1.events.run.A.") || strings.Contains(string(m.Data()), secretB) {
				t.Fatalf("it was told %s %s", m.Subject(), m.Data())
			}
			seen[m.Headers().Get("Nats-Msg-Id")] = true
			w.must(m.DoubleAck(w.ctx()))
		}
	}
	if len(seen) != 100 {
		t.Errorf("it read %d of 100 events", len(seen))
	}
	// The server drops the request, so that the client waits in vain.
	if _, err := js.Consumer(pool.Context(t, time.Second), jetstream.FeedStream, w.b.Account); err == nil {
		t.Error("it looked at b's consumer")
	}
}

// TestObserverReadsABurst: events that come at once arrive over one connection, in whatever frames the server makes of them.
func TestObserverReadsABurst(t *testing.T) {
	w := newFeedWorld(t)
	const n = 900
	var ms []broker.FeedMessage
	for i := range n {
		ms = append(ms, broker.FeedMessage{Seq: uint64(1001 + i), ID: fmt.Sprint("d-", i, ".0"), Subject: "tt.v1.events.run.C.made", Data: []byte(strings.Repeat("x", 8<<10))})
	}
	w.must(w.feed.Publish(w.ctx(), ms))
	o := w.observer("c", "C")
	nc, js := w.stock(o)
	defer nc.Close()
	c, err := js.Consumer(w.ctx(), jetstream.FeedStream, o.Account)
	w.must(err)
	batch, err := c.Fetch(n, natsjs.FetchMaxWait(20*time.Second))
	w.must(err)
	got := 0
	for m := range batch.Messages() {
		got++
		w.must(m.Ack())
	}
	if got != n || nc.LastError() != nil {
		t.Errorf("%d of %d events came, %v", got, n, nc.LastError())
	}
}

// stock is nats.go with the credential and API prefix that an observer is given.
func (w *feedWorld) stock(o *watcher) (*nats.Conn, natsjs.JetStream) {
	w.t.Helper()
	trust, err := identity.TrustTLS(w.p.Keys.CA())
	w.must(err)
	nc, err := nats.Connect(strings.Replace(w.p.URL, "https://", "wss://", 1)+"/nats", nats.Secure(trust),
		nats.UserJWT(func() (string, error) { return o.cred, nil }, o.user.Sign), nats.NoReconnect(), nats.Timeout(5*time.Second))
	w.must(err)
	js, err := natsjs.NewWithAPIPrefix(nc, wire.FeedAPI)
	w.must(err)
	return nc, js
}

// TestObserverIsNoLeaf: a raw leafnode chooses its replies freely, so none is let in, neither by the account nor by the user.
func TestObserverIsNoLeaf(t *testing.T) {
	w := newFeedWorld(t)
	for name, cred := range map[string]string{"as shipped": w.a.cred, "of any kind": w.boundless()} {
		p := w.dial(cred, true)
		if h := w.fire(p, feedShots(w)[5]); h != "" {
			t.Errorf("%s: %s", name, h)
		}
		if p.ping() {
			t.Errorf("%s: a leafnode was let in", name)
		}
	}
}

// TestControlObserverAsLeaf opens the account to leafnodes: the harm that the account's limit prevents must show.
func TestControlObserverAsLeaf(t *testing.T) {
	w := newFeedWorld(t)
	w.admitLeaf()
	p := w.dial(w.boundless(), true)
	s := feedShots(w)[5]
	for ctx := w.ctx(); ctx.Err() == nil; {
		w.fire(p, s)
		if strings.Contains(w.snapshot(), "pending ack 0") {
			return
		}
	}
	t.Error("a raw leafnode did not acknowledge b's message: the matrix could not see it either")
}

// TestRevokedObserverIsCut: its connection ends and no new one is let in.
func TestRevokedObserverIsCut(t *testing.T) {
	w := newFeedWorld(t)
	nc, _ := w.stock(w.a)
	defer nc.Close()
	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	tok, err := w.p.Keys.RevokedObserver(w.a.Observer, time.Now().Add(time.Second))
	w.must(err)
	w.must(w.p.Hub.RevokeMachine(tok))
	w.must(w.feed.DismissObserver(w.ctx(), w.a.Account))
	select {
	case <-closed:
	case <-time.After(patience):
		t.Fatal("the connection is still open")
	}
	if p := w.dial(w.a.cred, false); p.ping() {
		t.Error("a revoked observer was let in")
	}
	nc, js := w.stock(w.b)
	defer nc.Close()
	if _, err := js.Consumer(w.ctx(), jetstream.FeedStream, w.b.Account); err != nil {
		t.Errorf("b lost its access too: %v", err)
	}
}
