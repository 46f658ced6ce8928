package hostile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"tensorturn/broker/embedded"
	"tensorturn/broker/identity"
	"tensorturn/broker/wire"
	"tensorturn/test/hostile/pool"
)

// patience bounds every wait.
const patience = 30 * time.Second

// flaw is what a world has wrong on purpose.
type flaw int

const (
	asShipped     flaw = iota
	sharedAccount      // the machines' users are in HUB, as if rights were lists of subjects that somebody forgot to write
	serviceInHub       // machines have their own accounts, but are answered in the account that has JetStream
)

// world is a hub with a log, a bucket, consumers with a message in hand, a service and an honest machine b: everything
// that machine a, the attacker, must neither read nor change.
type world struct {
	t      *testing.T
	p      *pool.Pool
	flaw   flaw
	strict atomic.Bool // the service obeys its rule for replies

	a, b  *pool.Machine
	leafB *embedded.Leaf
	hub   *nats.Conn // HUB
	svc   *nats.Conn // where the service listens
	js    jetstream.JetStream
	wakes *nats.Subscription // at b
	asks  *nats.Subscription // at b

	streams []string
	watch   jetstream.Consumer // holds one unacknowledged message
	forged  string             // the subject that would acknowledge it
	nameB   string             // server name of b's leaf
	known   string             // the snapshot, "" when it must be taken anew
	lines   map[string]speaker // open connections of attackers, by name
	cuts    int                // of attackers, by their own doing
	number  int                // of the present canary

	mu    sync.Mutex
	heard []string // "account body" of every sync request
}

// newWorld builds it. A service of a flawed world also answers whom it should not and says what it was told, until
// strict is set.
func newWorld(t *testing.T, f flaw) *world {
	t.Helper()
	w := &world{t: t, flaw: f, lines: map[string]speaker{}}
	w.strict.Store(f == asShipped)
	w.p = pool.New(t, func(p *pool.Pool) { w.p = p }, pool.Weaken(w.weakHubAccount))
	w.a, w.b = w.p.Enrol("a", time.Hour), w.p.Enrol("b", time.Hour)
	for _, m := range []*pool.Machine{w.a, w.b} {
		switch f {
		case sharedAccount:
			w.intoHub(m)
		case serviceInHub:
			w.importFromHub(m)
		}
	}
	w.serve()
	w.fill()
	w.leafB = w.p.StartLeaf(w.b)
	var err error
	w.wakes, err = w.leafB.Conn().SubscribeSync(w.local(wire.LocalWake, wire.WakeSubject(w.b.Account)))
	w.must(err)
	w.asks, err = w.leafB.Conn().SubscribeSync(w.local(wire.LocalAsk, wire.AskSubject(w.b.Account)))
	w.must(err)
	w.must(w.leafB.Conn().Flush())
	w.settle()
	return w
}

func (w *world) must(err error) { w.t.Helper(); pool.Must(w.t, err) }

func (w *world) ctx() context.Context { return pool.Context(w.t, patience) }

// local picks the subject a machine uses: the import's, or in a weak world the real one.
func (w *world) local(strong, weak string) string {
	if w.flaw == sharedAccount {
		return weak
	}
	return strong
}

// weakHubAccount changes the HUB account's JWT by the flaw. The operator signs it like any other account.
func (w *world) weakHubAccount(tok string) string {
	c, err := jwt.DecodeAccountClaims(tok)
	w.must(err)
	switch w.flaw {
	case asShipped:
		return tok
	case sharedAccount:
		c.Limits.Conn, c.Limits.LeafNodeConn = jwt.NoLimit, jwt.NoLimit
	case serviceInHub:
		c.Limits.Exports, c.Limits.WildcardExports = jwt.NoLimit, true
		c.Exports.Add(
			&jwt.Export{Subject: wire.SyncSubjects, Type: jwt.Service, AccountTokenPosition: wire.AccountToken},
			&jwt.Export{Subject: wire.WakeSubjects, Type: jwt.Stream, AccountTokenPosition: wire.AccountToken},
			&jwt.Export{Subject: wire.AskSubjects, Type: jwt.Stream, AccountTokenPosition: wire.AccountToken},
			&jwt.Export{Subject: wire.AnswerSubjects, Type: jwt.Service, AccountTokenPosition: wire.AccountToken})
	}
	out, err := c.Encode(w.seed("operator.seed"))
	w.must(err)
	return out
}

// importFromHub points a machine's imports at HUB instead of SVC.
func (w *world) importFromHub(m *pool.Machine) {
	tok, err := w.p.Keys.MachineAccount(m.Machine)
	w.must(err)
	c, err := jwt.DecodeAccountClaims(tok)
	w.must(err)
	for _, i := range c.Imports {
		i.Account = w.p.Keys.PublicAccount(identity.RoleHub)
	}
	out, err := c.Encode(w.seed("operator.seed"))
	w.must(err)
	w.must(w.p.Hub.UpdateAccount(out))
}

// seed reads a key of the hub that the shipped code never gives away.
func (w *world) seed(name string) nkeys.KeyPair {
	b, err := os.ReadFile(filepath.Join(w.p.Keys.Dir(), name))
	w.must(err)
	kp, err := nkeys.FromSeed(bytes.TrimSpace(b))
	w.must(err)
	return kp
}

// intoHub replaces a machine's credential by one of the HUB account.
func (w *world) intoHub(m *pool.Machine) {
	c := jwt.NewUserClaims(m.Agent.NKey())
	c.Name = string(m.ID)
	tok, err := c.Encode(w.seed("hub.seed"))
	w.must(err)
	m.SetCredential(tok)
}

func (w *world) serve() {
	var err error
	if w.hub, err = w.p.Hub.HubConn("hub"); err == nil {
		w.js, err = jetstream.New(w.hub)
	}
	w.must(err)
	w.svc = w.hub
	if w.flaw == asShipped {
		w.svc, err = w.p.Hub.ServiceConn("service")
		w.must(err)
	}
	_, err = w.svc.Subscribe(wire.SyncSubjects, func(m *nats.Msg) {
		acc, _ := wire.AccountOfSync(m.Subject)
		w.mu.Lock()
		w.heard = append(w.heard, acc+" "+string(m.Data))
		w.mu.Unlock()
		switch {
		case wire.AcceptReply(m.Reply):
			_ = w.svc.Publish(m.Reply, []byte(pool.Answer+acc))
		case m.Reply != "" && !w.strict.Load():
			_ = w.svc.Publish(m.Reply, m.Data)
		}
	})
	w.must(err)
	_, err = w.svc.Subscribe(wire.AnswerSubjects, func(m *nats.Msg) {
		acc, _ := wire.AccountOfAnswer(m.Subject)
		w.mu.Lock()
		w.heard = append(w.heard, acc+" "+string(m.Data))
		w.mu.Unlock()
		if m.Reply != "" && !w.strict.Load() {
			_ = w.svc.Publish(m.Reply, m.Data)
		}
	})
	w.must(err)
}

// fill makes the streams. LAX allows everything that a stream can allow, so that an attack which needs such a stream has
// one to hit.
func (w *world) fill() {
	ctx := w.ctx()
	for _, c := range []jetstream.StreamConfig{
		{Name: "EVENTS", Subjects: []string{"tt.ev.>"}, DenyDelete: true, DenyPurge: true, AllowAtomicPublish: true, AllowDirect: true},
		{Name: "HEARTBEATS", Subjects: []string{"tt.hb.>"}},
		{Name: "FEED", Subjects: []string{"tt.v1.events.>"}, AllowDirect: true},
		{Name: "LAX", Subjects: []string{"lax.>"}, AllowRollup: true, AllowDirect: true, AllowMsgTTL: true, AllowMsgSchedules: true, AllowAtomicPublish: true},
	} {
		_, err := w.js.CreateStream(ctx, c)
		w.must(err)
	}
	kv, err := w.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "CONF"})
	w.must(err)
	_, err = kv.PutString(ctx, "k", "canary secret value")
	w.must(err)
	blobs, err := w.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: "BLOBS"})
	w.must(err)
	_, err = blobs.PutString(ctx, "part", "canary secret weights")
	w.must(err)
	for _, s := range []string{"tt.ev.run.r1.submitted", "tt.hb.b", "tt.v1.events.run.r1.submitted", "lax.one", "lax.two"} {
		_, err := w.js.Publish(ctx, s, []byte("canary first"))
		w.must(err)
	}
	w.streams = []string{"EVENTS", "HEARTBEATS", "FEED", "LAX", "KV_CONF", "OBJ_BLOBS"}
	w.watch, err = w.js.CreateConsumer(ctx, "EVENTS", jetstream.ConsumerConfig{Durable: "watch", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour})
	w.must(err)
	m, err := w.watch.Next()
	w.must(err)
	w.forged = m.Reply()
}

// canary makes every kind of traffic that is none of the attacker's business and waits until all of it has happened.
func (w *world) canary() {
	w.t.Helper()
	w.number++
	text := []byte(fmt.Sprintf("canary %d", w.number))
	ctx := w.ctx()
	_, err := w.js.Publish(ctx, "tt.ev.run.r1.claimed", text)
	w.must(err)
	_, err = w.js.Publish(ctx, "tt.v1.events.run.r1.claimed", text)
	w.must(err)
	w.must(w.hub.Publish("tt.hb.b", text))
	_, err = w.js.Publish(ctx, "$KV.CONF.other", text)
	w.must(err)
	_, err = w.js.Publish(ctx, "$O.BLOBS.C.other", text)
	w.must(err)
	w.reachB(w.wakes, wire.WakeSubject(w.b.Account), string(text))
	w.reachB(w.asks, wire.AskSubject(w.b.Account), string(text))
	w.must(w.leafB.Conn().Publish(w.local(wire.LocalAnswer, wire.AnswerSubject(w.b.Account)), text))
	w.settle()
}

// reachB hints to b, or asks it for a prediction, and waits until b has it.
func (w *world) reachB(at *nats.Subscription, subject, text string) {
	w.t.Helper()
	ctx := w.ctx()
	for {
		w.must(w.svc.Publish(subject, []byte(text)))
		m, err := at.NextMsg(2 * time.Second)
		if err == nil && string(m.Data) == text {
			return
		}
		if ctx.Err() != nil {
			w.t.Fatalf("b no longer hears %q: %v", text, err)
		}
	}
}

// settle waits until the service has answered everything that reached it before: b's request is behind it in the queue.
func (w *world) settle() {
	w.t.Helper()
	if _, err := pool.Ask(w.ctx(), w.leafB.Conn(), w.local(wire.LocalSync, wire.SyncSubject(w.b.Account)), "canary from b"); err != nil {
		w.t.Fatalf("b no longer reaches the hub: %v", err)
	}
	w.must(w.svc.Flush())
	w.must(w.hub.Flush())
}

// snapshot is everything an attacker could have changed, as text to compare.
func (w *world) snapshot() string {
	w.t.Helper()
	ctx := w.ctx()
	var out []string
	names := w.js.StreamNames(ctx)
	for n := range names.Name() {
		out = append(out, "stream "+n)
	}
	w.must(names.Err())
	slices.Sort(out)
	for _, n := range w.streams {
		s, err := w.js.Stream(ctx, n)
		if err != nil {
			out = append(out, n+" is gone")
			continue
		}
		i := s.CachedInfo()
		out = append(out, fmt.Sprintf("%s %d..%d msgs %d bytes %d deleted %d consumers %d", n, i.State.FirstSeq, i.State.LastSeq, i.State.Msgs, i.State.Bytes, i.State.NumDeleted, i.State.Consumers))
	}
	if i, err := w.watch.Info(ctx); err != nil {
		out = append(out, "consumer is gone")
	} else {
		out = append(out, fmt.Sprintf("watch floor %d pending ack %d delivered %d redelivered %d paused %v", i.AckFloor.Stream, i.NumAckPending, i.Delivered.Consumer, i.NumRedelivered, i.Paused))
	}
	return strings.Join(append(out, w.leafOfB()), "\n")
}

// leafOfB names b's link to the hub; another number is another connection: b was cut.
func (w *world) leafOfB() string {
	w.t.Helper()
	leafs, err := w.p.Hub.Leafs()
	w.must(err)
	for _, l := range leafs { // in the order they connected: an attacker under b's name comes later
		if w.flaw == sharedAccount && strings.HasPrefix(l.Name, "b-") || w.flaw != sharedAccount && l.Account == w.b.Account {
			w.nameB = l.Name
			return fmt.Sprintf("leaf of b %d", l.ID)
		}
	}
	return "b has no leaf"
}

// foreign reads every stream in full and lists what did not come from the hub.
func (w *world) foreign() []string {
	w.t.Helper()
	var out []string
	for _, n := range w.streams {
		s, err := w.js.Stream(w.ctx(), n)
		w.must(err)
		i := s.CachedInfo().State
		for seq := i.FirstSeq; seq <= i.LastSeq; seq++ {
			m, err := s.GetMsg(w.ctx(), seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue // replaced by the hub's own next value of that key
			}
			w.must(err)
			if meta := strings.HasPrefix(m.Subject, "$O.BLOBS.M."); !meta && !strings.HasPrefix(string(m.Data), "canary") {
				out = append(out, fmt.Sprintf("%s:%d %s %.80q", n, seq, m.Subject, m.Data))
			}
		}
	}
	return out
}

// misheard lists requests that reached the service under an account that did not send them. The attacker's bodies begin
// with "attack", b's with "canary".
func (w *world) misheard() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, h := range w.heard {
		acc, body, _ := strings.Cut(h, " ")
		if attack := !strings.HasPrefix(body, "canary"); attack == (acc == w.b.Account) || acc != w.a.Account && acc != w.b.Account {
			out = append(out, h)
		}
	}
	w.heard = nil
	return out
}

// canaryBase64 is how "canary" looks inside an answer of the JetStream API.
const canaryBase64 = "Y2FuYXJ5"

// leaked lists what an attacker has no right to have read: canaries, b's account, the hub's own account.
func (w *world) leaked(got []message) []string {
	var out []string
	for _, m := range got {
		if strings.Contains(m.header, "503") && m.body == "" {
			continue // "no responders", which quotes the attacker's own subject
		}
		s := m.String()
		for _, secret := range []string{"canary", canaryBase64, w.b.Account, w.p.Keys.PublicAccount(identity.RoleHub)} {
			if strings.Contains(s, secret) {
				out = append(out, fmt.Sprintf("%.200q", s))
				break
			}
		}
	}
	return out
}

// heardFrom reports whether the hub has heard this body from the account.
func (w *world) heardFrom(account, body string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.heard, account+" "+body)
}
