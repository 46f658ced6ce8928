package bubble

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"

	"tensorturn/broker"
	"tensorturn/broker/jetstream"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/run"
)

const granted = 8 << 30 // bytes that the server grants JetStream

// room is a server, a link to it, and a committer at the link's other end.
type room struct {
	t    *testing.T
	link *link
	nc   *nats.Conn
	log  *jetstream.Log
	reg  *event.Registry
	c    *broker.Committer
}

// inBubble plays a test with a fresh room.
func inBubble(t *testing.T, test func(*room)) {
	dir := t.TempDir()
	for range 2 { // the client pools timers for the whole process: two collections empty the pool, for none may cross bubbles
		runtime.GC()
	}
	ats.Register() // the server's clock for access times has a channel of the whole process: it must run outside
	defer ats.Unregister()
	synctest.Test(t, func(t *testing.T) {
		s, err := server.NewServer(&server.Options{ServerName: "hub", DontListen: true, NoSigs: true, NoLog: true, JetStream: true,
			JetStreamDomain: "hub", StoreDir: dir, SyncAlways: true, JetStreamMaxStore: granted, JetStreamMaxMemory: 256 << 20})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		if !s.ReadyForConnections(20 * time.Second) {
			t.Fatal("the server is not ready")
		}
		l := &link{s: s}
		nc, err := nats.Connect("", nats.InProcessServer(l), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.RetryOnFailedConnect(true))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			nc.Close()
			s.Shutdown()
			s.WaitForShutdown()
			time.Sleep(time.Second) // virtual: the store's flush loops see that they are to end
		}()
		store, err := jetstream.Open(t.Context(), nc, "hub", granted)
		if err != nil {
			t.Fatal(err)
		}
		r := &room{t: t, link: l, nc: nc, log: store.Log, reg: event.NewRegistry()}
		run.Register(r.reg)
		r.c = r.committer()
		test(r)
	})
}

// heal ends what is wrong with the link and waits, in virtual time, until the client is back.
func (r *room) heal() {
	r.link.up()
	time.Sleep(time.Second)
	for !r.nc.IsConnected() {
		time.Sleep(time.Second)
	}
}

// committer makes a writer that knows the log as it is.
func (r *room) committer() *broker.Committer {
	r.t.Helper()
	c := broker.NewCommitter(r.log, r.reg)
	if err := c.Open(r.t.Context(), func(event.Envelope) error { return nil }); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// commit writes one group of two events under a command.
func (r *room) commit(c *broker.Committer, command domain.CommandID) error {
	pause := event.Event{Kind: event.KindRun, ID: "r-1", Data: &run.Paused{Reason: string(command)}}
	resume := event.Event{Kind: event.KindRun, ID: "r-1", Data: &run.Resumed{}}
	_, err := c.Commit(r.t.Context(), time.Now(), []broker.Group{{Command: command, Actor: "operator", Events: []event.Event{pause, resume}}})
	return err
}

// want demands that the log holds exactly these records, and that their chain is whole.
func (r *room) want(ids ...string) {
	r.t.Helper()
	v := event.NewVerifier(r.reg)
	i := 0
	for rec, err := range r.log.Read(context.Background(), 1) {
		if err != nil {
			r.t.Fatal(err)
		}
		if _, err := v.Next(rec.Seq, rec.Data); err != nil {
			r.t.Fatal(err)
		}
		if i >= len(ids) || rec.ID != ids[i] {
			r.t.Fatalf("record %d is %s, want %v", rec.Seq, rec.ID, ids)
		}
		i++
	}
	if i != len(ids) {
		r.t.Fatalf("the log has %d records, want %v", i, ids)
	}
}

// TestAmbiguousAcknowledgement: the batch is stored and the answer is lost. The committer finds its own command in the log
// and takes it for stored, once.
func TestAmbiguousAcknowledgement(t *testing.T) {
	inBubble(t, func(r *room) {
		if err := r.commit(r.c, "c-1"); err != nil {
			t.Fatal(err)
		}
		r.link.lose()
		time.AfterFunc(20*time.Second, r.link.up) // the answer is gone; the look at the log behind the append's limit passes
		began := time.Now()
		if err := r.commit(r.c, "c-2"); err != nil {
			t.Fatalf("the batch is stored, and the committer says: %v", err)
		}
		if waited := time.Since(began); waited < 30*time.Second {
			t.Errorf("the answer was lost and came after %v", waited)
		}
		if err := r.commit(r.c, "c-3"); err != nil {
			t.Fatal(err)
		}
		r.want("c-1.0", "c-1.1", "c-2.0", "c-2.1", "c-3.0", "c-3.1")
	})
}

// TestUnknownOutcome: the answer is lost and the log cannot be read for longer than anybody waits. Nothing may be written
// behind it by this committer, and a new one finds the whole batch.
func TestUnknownOutcome(t *testing.T) {
	inBubble(t, func(r *room) {
		r.link.lose()
		if err := r.commit(r.c, "c-1"); domain.KindOf(err) != domain.KindUnavailable {
			t.Fatalf("the outcome is not known, and the committer says: %v", err)
		}
		r.heal()
		if err := r.commit(r.c, "c-2"); err == nil {
			t.Fatal("a committer that does not know the log's end goes on writing")
		}
		if err := r.commit(r.committer(), "c-3"); err != nil {
			t.Fatal(err)
		}
		r.want("c-1.0", "c-1.1", "c-3.0", "c-3.1")
	})
}

// TestDuplicateBatch: a command that was decided twice is stored once.
func TestDuplicateBatch(t *testing.T) {
	inBubble(t, func(r *room) {
		if err := r.commit(r.c, "c-1"); err != nil {
			t.Fatal(err)
		}
		if err := r.commit(r.c, "c-1"); domain.KindOf(err) != domain.KindConflict {
			t.Errorf("the same batch again: %v", err)
		}
		r.want("c-1.0", "c-1.1")
		if err := r.commit(r.committer(), "c-2"); err != nil {
			t.Fatal(err)
		}
		r.want("c-1.0", "c-1.1", "c-2.0", "c-2.1")
	})
}

// TestSequenceConflict: of two writers that both know the same end the second is refused, for good, and nothing of it is
// in the log.
func TestSequenceConflict(t *testing.T) {
	inBubble(t, func(r *room) {
		second := r.committer()
		if err := r.commit(r.c, "c-1"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := r.commit(second, "c-2"); domain.KindOf(err) != domain.KindConflict {
				t.Errorf("a second writer is told: %v", err)
			}
		}
		r.want("c-1.0", "c-1.1")
	})
}

// TestLinkCuts cuts the link at each of the client's writes of a batch: the batch is stored whole or not at all, the
// committer says which, and goes on.
func TestLinkCuts(t *testing.T) {
	for n := 1; n <= 4; n++ {
		inBubble(t, func(r *room) {
			r.link.after(n)
			soon := time.AfterFunc(time.Second, r.link.up)
			err := r.commit(r.c, "c-1")
			soon.Stop()
			want := []string{"c-1.0", "c-1.1"}
			switch {
			case err == nil:
			case domain.KindOf(err) == domain.KindUnavailable:
				want = nil
			default:
				t.Fatalf("cut at write %d: %v", n, err)
			}
			r.heal()
			r.want(want...)
			if err := r.commit(r.committer(), "c-2"); err != nil {
				t.Fatal(err)
			}
			r.want(append(want, "c-2.0", "c-2.1")...)
		})
	}
}
