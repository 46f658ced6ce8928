package hostile

import (
	"strings"
	"testing"

	"tensorturn/broker/wire"
	"tensorturn/test/hostile/pool"
)

// evidence repeats a cell until the harm it must do in a flawed world shows: JetStream works behind the connection.
func (w *world) evidence(a attacker, c cell, want string, more map[string]any) {
	w.t.Helper()
	var seen []string
	for range 20 {
		h := w.harm(a, c, more)
		if strings.Contains(h, want) {
			return
		}
		seen = append(seen, h)
	}
	w.t.Errorf("%s: %s: no %q in a flawed world, so the matrix could not see it either; seen: %q", a.name, c.name, want, seen)
}

// find picks cells by name.
func find(t *testing.T, cells []cell, name string) cell {
	t.Helper()
	for _, c := range cells {
		if strings.HasPrefix(c.name, name) {
			return c
		}
	}
	t.Fatalf("no cell %q", name)
	return cell{}
}

// TestControlSharedAccount runs cells of the matrix where machines are users of the account with JetStream: they must do
// harm, or the matrix proves nothing.
func TestControlSharedAccount(t *testing.T) {
	w := newWorld(t, sharedAccount)
	stock, client, leaf, boast := attackers[0], attackers[1], attackers[2], attackers[3]
	listen, publish := listening(w), publishing(w)
	for _, c := range []struct {
		by   attacker
		in   []cell
		cell string
		want string
	}{
		{stock, listen, "listen to >", "read:"},
		{client, listen, "listen to tt.ev.>", "read:"},
		{leaf, listen, "listen to tt.v1.from.*.sync", "read:"},
		{leaf, listen, "listen to " + wire.WakeSubject(w.b.Account), "read:"},
		{leaf, listen, "listen to " + wire.AskSubject(w.b.Account), "read:"},
		{client, listen, "listen to tt.v1.from.*.answer", "read:"},
		{client, publish, "publish " + wire.AnswerSubject(w.b.Account), "heard in another's name"},
		{client, publish, "publish " + wire.AskSubject(w.b.Account), "b was sent"},
		{client, publish, "publish tt.ev.run.r1.forged", "EVENTS"},
		{leaf, publish, "publish tt.hb.b", "HEARTBEATS"},
		{leaf, publish, "publish $O.BLOBS.C.evil", "OBJ_BLOBS"},
		{client, publish, "publish " + wire.SyncSubject(w.b.Account), "heard in another's name"},
		{client, publish, "publish " + wire.WakeSubject(w.b.Account), "b was sent"},
		{client, publish, "publish $KV.CONF.k", "KV_CONF"},
		{stock, publish, "publish $JS.API.STREAM.MSG.GET.EVENTS", canaryBase64},
		{boast, publish, "publish $JS.hub.API.CONSUMER.CREATE.EVENTS.evil", "consumers 2"},
		{client, publish, "publish $JS.API.CONSUMER.PAUSE.EVENTS.watch", "paused true"},
		{leaf, replies(w), "aim JetStream's answer at tt.ev.run.r1.forged", "EVENTS"},
		{leaf, headers(w), "header Nats-Rollup: all", "LAX"},
		{client, headers(w), "header Nats-Schedule: @at", "LAX"},
		{client, headers(w), "header Nats-Batch-Id: evil", "LAX"},
		{leaf, acknowledgements(w), `forge acknowledgement "+TERM"`, "pending ack 0"},
		{stock, publish, "publish $JS.API.STREAM.PURGE.LAX", "LAX"},
	} {
		w.evidence(c.by, find(t, c.in, c.cell), c.want, nil)
	}
	w.evidence(leaf, cell{name: "take b's name", listen: []string{wire.LocalWake}}, "cut:", w.likeB())
	if len(w.foreign()) == 0 {
		t.Error("nothing foreign is found in the streams of a world where attackers may write")
	}
}

// TestControlServiceInHub shows why machines are answered in an account without JetStream and why a handler looks at the
// reply: with the service in HUB a raw leafnode turns its answer into another consumer's acknowledgement, until the
// handler obeys AcceptReply.
func TestControlServiceInHub(t *testing.T) {
	w := newWorld(t, serviceInHub)
	leaf := attackers[2]
	aim := find(t, replies(w), "aim the answer at "+w.forged)
	tell := find(t, replies(w), "answer with a reply to "+w.forged)
	w.strict.Store(true)
	for _, c := range []cell{aim, tell} {
		if h := w.harm(leaf, c, nil); h != "" {
			t.Errorf("the handler obeys its rule, and still:\n%s", h)
		}
	}
	w.strict.Store(false)
	w.evidence(leaf, aim, "pending ack 0", nil)
	_, err := pool.Sync(w.ctx(), w.leafB.Conn(), "canary last")
	w.must(err)
}
