package hostile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"tensorturn/broker"
	"tensorturn/broker/embedded"
	"tensorturn/broker/identity"
	"tensorturn/broker/jetstream"
	"tensorturn/domain"
	"tensorturn/test/hostile/pool"
)

// secretB is in every event of run B, which observer a may not read.
const secretB = "secret-of-b"

// feedWorld is a hub with a feed of runs A and B and two observers, a of A and b of B. Observer a is the attacker; b has a
// message in hand.
type feedWorld struct {
	t    *testing.T
	p    *pool.Pool
	hub  *nats.Conn
	js   natsjs.JetStream
	feed *jetstream.Feed
	a, b *watcher
	held string // the subject that acknowledges what b has in hand
}

// watcher is an observer with its user.
type watcher struct {
	identity.Observer
	user nkeys.KeyPair
	cred string
}

func newFeedWorld(t *testing.T) *feedWorld {
	t.Helper()
	w := &feedWorld{t: t, p: pool.New(t)}
	var err error
	w.hub, err = w.p.Hub.HubConn("hub")
	w.must(err)
	store, err := jetstream.Open(w.ctx(), w.hub, embedded.JetStreamDomain, 1<<30)
	w.must(err)
	w.feed = store.Feed
	w.js, err = natsjs.New(w.hub)
	w.must(err)
	_, _, err = w.feed.Tail(w.ctx())
	w.must(err)
	var ms []broker.FeedMessage
	for i := range 200 {
		run, body := "A", fmt.Sprintf(`{"n":%d}`, i)
		if i%2 == 1 {
			run, body = "B", fmt.Sprintf(`{"n":%d,"text":%q}`, i, secretB)
		}
		ms = append(ms, broker.FeedMessage{Seq: uint64(i + 1), ID: fmt.Sprint("c-", i, ".0"), Subject: "tt.v1.events.run." + run + ".made", Data: []byte(body)})
	}
	w.must(w.feed.Publish(w.ctx(), ms))
	w.a, w.b = w.observer("a", "A"), w.observer("b", "B")
	c, err := w.js.Consumer(w.ctx(), jetstream.FeedStream, w.b.Account)
	w.must(err)
	m, err := c.Next()
	w.must(err)
	w.held = m.Reply()
	return w
}

func (w *feedWorld) must(err error) { w.t.Helper(); pool.Must(w.t, err) }

func (w *feedWorld) ctx() context.Context { return pool.Context(w.t, patience) }

// observer makes an observer as the hub does.
func (w *feedWorld) observer(id, run string) *watcher {
	w.t.Helper()
	o, err := w.p.Keys.Observer(domain.ObserverID(id))
	w.must(err)
	tok, err := w.p.Keys.ObserverAccount(o)
	w.must(err)
	w.must(w.feed.AdmitObserver(w.ctx(), jetstream.Observer{Consumer: o.Account, Filter: "tt.v1.events.run." + run + ".>"}))
	w.must(w.p.Hub.UpdateAccount(tok))
	out := &watcher{Observer: o}
	out.user, err = nkeys.CreateUser()
	w.must(err)
	out.cred, err = o.Credential(w.nkey(out), time.Now().Add(time.Hour), time.Now())
	w.must(err)
	return out
}

func (w *feedWorld) nkey(o *watcher) string {
	pub, err := o.user.PublicKey()
	w.must(err)
	return pub
}

// seed reads a key that the shipped code never gives away.
func (w *feedWorld) seed(name string) nkeys.KeyPair {
	raw, err := os.ReadFile(filepath.Join(w.p.Keys.Dir(), name))
	w.must(err)
	kp, err := nkeys.FromSeed([]byte(strings.TrimSpace(string(raw))))
	w.must(err)
	return kp
}

// boundless is a credential of a's account without the user's permissions: what is left is the imports.
func (w *feedWorld) boundless(types ...string) string {
	c := jwt.NewUserClaims(w.nkey(w.a))
	c.AllowedConnectionTypes = types
	tok, err := c.Encode(w.seed(filepath.Join("observers", "a.seed")))
	w.must(err)
	return tok
}

// admitLeaf opens a's account to leafnodes: the flaw of the control.
func (w *feedWorld) admitLeaf() {
	tok, err := w.p.Keys.ObserverAccount(w.a.Observer)
	w.must(err)
	c, err := jwt.DecodeAccountClaims(tok)
	w.must(err)
	c.Limits.LeafNodeConn = jwt.NoLimit
	tok, err = c.Encode(w.seed("operator.seed"))
	w.must(err)
	w.must(w.p.Hub.UpdateAccount(tok))
}

func (w *feedWorld) dial(cred string, leaf bool) *peer {
	w.t.Helper()
	return dialPeer(w.t, w.p.URL, w.p.Keys.CA(), cred, w.a.user, leaf, map[string]any{"name": "evil"})
}

// snapshot is everything a could have changed: the stream, its consumers but a's own place, b's place, other streams.
func (w *feedWorld) snapshot() string {
	w.t.Helper()
	var out []string
	names := w.js.StreamNames(w.ctx())
	for n := range names.Name() {
		s, err := w.js.Stream(w.ctx(), n)
		w.must(err)
		st := s.CachedInfo().State
		out = append(out, fmt.Sprintf("stream %s %d..%d msgs %d deleted %d consumers %d", n, st.FirstSeq, st.LastSeq, st.Msgs, st.NumDeleted, st.Consumers))
	}
	w.must(names.Err())
	slices.Sort(out)
	s, err := w.js.Stream(w.ctx(), jetstream.FeedStream)
	w.must(err)
	i := s.CachedInfo()
	out = append(out, fmt.Sprintf("FEED %d..%d msgs %d bytes %d deleted %d consumers %d config %+v", i.State.FirstSeq, i.State.LastSeq, i.State.Msgs,
		i.State.Bytes, i.State.NumDeleted, i.State.Consumers, i.Config))
	for _, o := range []*watcher{w.a, w.b} {
		c, err := s.Consumer(w.ctx(), o.Account)
		if err != nil {
			out = append(out, string(o.ID)+" has no consumer")
			continue
		}
		k := c.CachedInfo()
		out = append(out, fmt.Sprintf("%s config %+v paused %v", o.ID, k.Config, k.Paused))
		if o == w.b {
			out = append(out, fmt.Sprintf("b floor %d pending ack %d delivered %d redelivered %d", k.AckFloor.Stream, k.NumAckPending, k.Delivered.Stream, k.NumRedelivered))
		}
	}
	return strings.Join(out, "\n")
}
