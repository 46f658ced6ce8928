package hub

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"tensorturn/broker/wire"
)

const testAccount = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// connect starts a server in this process that listens nowhere.
func connect(t *testing.T) *nats.Conn {
	t.Helper()
	s, err := server.NewServer(&server.Options{ServerName: "t", DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not get ready")
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func TestNATSLink(t *testing.T) {
	nc := connect(t)
	l := NewNATSLink(nc)
	type call struct{ account, data string }
	calls := make(chan call, 16)
	err := l.Serve(func(account string, data []byte, reply func([]byte)) {
		calls <- call{account, string(data)}
		reply([]byte("answer"))
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := nc.Request(wire.SyncSubject(testAccount), []byte("question"), 5*time.Second)
	if err != nil || string(m.Data) != "answer" {
		t.Fatalf("answer %v, %v", m, err)
	}
	if got := <-calls; got != (call{testAccount, "question"}) {
		t.Errorf("handled %+v", got)
	}

	// Replies that aim at somebody's acknowledgement or at JetStream, no reply, and a subject without an account are
	// not even handled. The last request is a good one, so that the test waits for all of them.
	for _, reply := range []string{"$JS.ACK.EVENTS.c.1.1.1.1.1", "$JS.API.STREAM.DELETE.EVENTS", "tt.ev.run.r-1.x"} {
		if err := nc.PublishRequest(wire.SyncSubject(testAccount), reply, []byte("bad")); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Publish(wire.SyncSubject(testAccount), []byte("bad")); err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("tt.v1.from.nobody.sync", nats.NewInbox(), []byte("bad")); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Request(wire.SyncSubject(testAccount), []byte("good"), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if got := <-calls; got.data != "good" {
		t.Errorf("handled %+v", got)
	}

	woken, err := nc.SubscribeSync(wire.WakeSubject(testAccount))
	if err != nil {
		t.Fatal(err)
	}
	l.Wake(testAccount)
	if _, err := woken.NextMsg(5 * time.Second); err != nil {
		t.Errorf("no wake: %v", err)
	}

	l.Close()
	if _, err := nc.Request(wire.SyncSubject(testAccount), []byte("late"), 300*time.Millisecond); err == nil {
		t.Error("a closed link answers")
	}
	if len(calls) != 0 {
		t.Error("a closed link handles")
	}
}
