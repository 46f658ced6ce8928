package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"tensorturn/broker"
	"tensorturn/broker/brokertest"
	"tensorturn/broker/jetstream"
	"tensorturn/domain"
)

func TestConfigurationIsComparedFieldByField(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  natsjs.StreamConfig
		want string
	}{
		"log may be purged": {natsjs.StreamConfig{Name: jetstream.EventStream, Subjects: []string{"tt.ev.>"}, Discard: natsjs.DiscardNew,
			Duplicates: 10 * time.Second, MaxBytes: 1 << 30, MaxMsgSize: broker.MaxRecordBytes + 1024, DenyDelete: true, AllowAtomicPublish: true, AllowDirect: true}, "field DenyPurge is false, want true"},
		"log forgets": {natsjs.StreamConfig{Name: jetstream.EventStream, Subjects: []string{"tt.ev.>"}, Discard: natsjs.DiscardNew, MaxBytes: 1 << 30, MaxAge: time.Hour},
			"field MaxAge is 1h0m0s, want 0s"},
		"log in memory": {natsjs.StreamConfig{Name: jetstream.EventStream, Subjects: []string{"tt.ev.>"}, Discard: natsjs.DiscardNew, Storage: natsjs.MemoryStorage,
			MaxBytes: 64 << 20, Duplicates: 10 * time.Second, MaxMsgSize: broker.MaxRecordBytes + 1024}, "field Storage is Memory, want File"},
		"heartbeats without end": {natsjs.StreamConfig{Name: jetstream.HeartbeatStream, Subjects: []string{"tt.hb.*"}}, "stream HEARTBEATS: field MaxBytes is -1"},
		"blobs with an age":      {natsjs.StreamConfig{Name: "OBJ_BLOBS", Subjects: []string{"$O.BLOBS.C.>", "$O.BLOBS.M.>"}, Discard: natsjs.DiscardNew, MaxBytes: 1 << 30, MaxAge: time.Hour}, "field MaxAge"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, t.TempDir())
			nc := connect(t, s)
			js, err := natsjs.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := js.CreateStream(t.Context(), tc.cfg); err != nil {
				t.Fatal(err)
			}
			_, err = jetstream.Open(t.Context(), nc, "hub", granted)
			if domain.KindOf(err) != domain.KindConflict || !strings.Contains(err.Error(), tc.want) || domain.NextOf(err) == "" {
				t.Fatalf("got %v, want a conflict with %q", err, tc.want)
			}
		})
	}
}

func TestOpenTwiceIsTheSame(t *testing.T) {
	s := startServer(t, t.TempDir())
	st := openStore(t, s)
	mustAppend(t, st.Log, 0, brokertest.Records("a", 3))
	if last, err := openStore(t, s).Log.Last(t.Context()); err != nil || last != 3 {
		t.Fatalf("last %d, %v", last, err)
	}
}

func mustAppend(t testing.TB, l broker.Log, expect uint64, recs []broker.Record) {
	t.Helper()
	if last, err := l.Append(t.Context(), expect, recs); err != nil || last != expect+uint64(len(recs)) {
		t.Fatalf("append behind %d: last %d, %v", expect, last, err)
	}
}

// TestTheLogCannotBeCut: not even its own account can take a record away.
func TestTheLogCannotBeCut(t *testing.T) {
	s := startServer(t, t.TempDir())
	st := openStore(t, s)
	mustAppend(t, st.Log, 0, brokertest.Records("a", 3))
	js, err := natsjs.New(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), jetstream.EventStream)
	if err != nil {
		t.Fatal(err)
	}
	if stream.Purge(t.Context()) == nil || stream.DeleteMsg(t.Context(), 2) == nil {
		t.Fatal("records can be taken away")
	}
	if n := len(brokertest.All(t, st.Log, 1)); n != 3 {
		t.Fatalf("%d records are left", n)
	}
}

func TestRestartOnTheSameDirectory(t *testing.T) {
	const events = 10_000
	dir := t.TempDir()
	s := startServer(t, dir)
	fill(t, openStore(t, s).Log, events)
	stopServer(s)
	l := openStore(t, startServer(t, dir)).Log
	if last, err := l.Last(t.Context()); err != nil || last != events {
		t.Fatalf("last %d, %v", last, err)
	}
	recs := brokertest.All(t, l, 1)
	if len(recs) != events || recs[events-1].ID != "c-9000.999" {
		t.Fatalf("%d records, the last %s", len(recs), recs[len(recs)-1].ID)
	}
	mustAppend(t, l, events, brokertest.Records("after", 2))
}

// TestTwoWriters lets two connections append behind the same sequence again and again: one wins, and nothing is lost.
func TestTwoWriters(t *testing.T) {
	s := startServer(t, t.TempDir())
	logs := []broker.Log{openStore(t, s).Log, openStore(t, s).Log}
	for round := range uint64(20) {
		errs := make(chan error, len(logs))
		for i, l := range logs {
			go func() {
				_, err := l.Append(t.Context(), round*3, brokertest.Records(fmt.Sprintf("w%d-%d", i, round), 3))
				errs <- err
			}()
		}
		lost := 0
		for range logs {
			var conflict *broker.ConflictError
			if err := <-errs; errors.As(err, &conflict) {
				lost++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if lost != 1 {
			t.Fatalf("round %d: %d writers lost", round, lost)
		}
	}
	if n := len(brokertest.All(t, logs[0], 1)); n != 60 {
		t.Fatalf("%d records", n)
	}
}

// TestLastIsFinal gives up on appends at every possible moment. What Last then says must hold: a batch that was not
// there must not come later.
func TestLastIsFinal(t *testing.T) {
	l := newStore(t).Log
	r := rand.New(rand.NewPCG(7, 7))
	seq, unsure := uint64(0), 0
	for i := range 150 {
		n := 1 + r.IntN(20)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(6000))*time.Microsecond)
		last, err := l.Append(ctx, seq, brokertest.Records(fmt.Sprintf("c-%d", i), n))
		cancel()
		if err != nil {
			unsure++
			if domain.KindOf(err) != domain.KindUnavailable {
				t.Fatalf("append %d: %v", i, err)
			}
			if last, err = l.Last(t.Context()); err != nil {
				t.Fatal(err)
			}
			if last != seq && last != seq+uint64(n) {
				t.Fatalf("append %d: last is %d, neither %d nor %d", i, last, seq, seq+uint64(n))
			}
		}
		seq = last // if it came later, the next append would meet it
	}
	if unsure < 10 {
		t.Fatalf("only %d answers were lost: the test shows nothing", unsure)
	}
	if n := uint64(len(brokertest.All(t, l, 1))); n != seq {
		t.Fatalf("%d records, want %d", n, seq)
	}
}

// TestFullStore fills the store to its limit: the error says what to do, and everything confirmed is there.
func TestFullStore(t *testing.T) {
	s := startServer(t, t.TempDir(), func(o *server.Options) { o.JetStreamMaxStore = jetstream.MinStore })
	st, err := jetstream.Open(t.Context(), connect(t, s), "hub", jetstream.MinStore)
	if err != nil {
		t.Fatal(err)
	}
	l := st.Log
	large := brokertest.Part(1, 400<<10)
	seq := uint64(0)
	for i := 0; err == nil && i < 100; i++ {
		recs := brokertest.Records(fmt.Sprintf("c-%d", i), 25)
		for k := range recs {
			recs[k].Data = large
		}
		var last uint64
		if last, err = l.Append(t.Context(), seq, recs); err == nil {
			seq = last
		}
	}
	if domain.KindOf(err) != domain.KindUnavailable || !strings.Contains(err.Error(), "full") || domain.NextOf(err) == "" {
		t.Fatalf("got %v", err)
	}
	if last, err := l.Last(t.Context()); err != nil || last != seq {
		t.Fatalf("last %d, %v; want %d", last, err, seq)
	}
	if n := uint64(len(brokertest.All(t, l, 1))); n != seq || n == 0 {
		t.Fatalf("%d records, want %d", n, seq)
	}
}

func TestStoppedServerIsUnavailable(t *testing.T) {
	s := startServer(t, t.TempDir())
	l := openStore(t, s).Log
	mustAppend(t, l, 0, brokertest.Records("a", 3))
	stopServer(s)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := l.Append(ctx, 3, brokertest.Records("b", 2)); domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("append: %v", err)
	}
	if _, err := l.Last(ctx); domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("last: %v", err)
	}
	for _, err := range l.Read(ctx, 1) {
		if domain.KindOf(err) != domain.KindUnavailable {
			t.Errorf("read: %v", err)
		}
	}
}

func TestReadLeavesNothingBehind(t *testing.T) {
	s := startServer(t, t.TempDir())
	l := openStore(t, s).Log
	fill(t, l, 10_000)
	for range l.Read(t.Context(), 1) { // whatever starts once has started now
		break
	}
	before := goleak.IgnoreCurrent()
	for i := range 20 {
		n := 0
		for _, err := range l.Read(t.Context(), 1) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n > i*300 {
				break
			}
		}
	}
	goleak.VerifyNone(t, before)
	js, err := natsjs.New(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), jetstream.EventStream)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := stream.Info(t.Context()); err != nil || info.State.Consumers != 0 {
		t.Fatalf("%d consumers are left, %v", info.State.Consumers, err)
	}
}

func TestHeartbeatsAreKeptUnderTheirMachine(t *testing.T) {
	s := startServer(t, t.TempDir())
	st := openStore(t, s)
	st.Heartbeats.Heartbeat("m-1", []byte("one"))
	st.Heartbeats.Heartbeat("m-1", []byte("two"))
	st.Heartbeats.Heartbeat("*", []byte("of no machine"))
	st.Heartbeats.Heartbeat("m-2", make([]byte, 1<<20)) // too long
	js, err := natsjs.New(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), jetstream.HeartbeatStream)
	if err != nil {
		t.Fatal(err)
	}
	c, err := stream.CreateConsumer(t.Context(), natsjs.ConsumerConfig{AckPolicy: natsjs.AckNonePolicy})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 2 {
		m, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Subject()+" "+string(m.Data()))
	}
	if strings.Join(got, ", ") != "tt.hb.m-1 one, tt.hb.m-1 two" {
		t.Fatalf("got %v", got)
	}
	if info, err := stream.Info(t.Context()); err != nil || info.State.Msgs != 2 {
		t.Fatalf("%d messages, %v", info.State.Msgs, err)
	}
}

// TestStoreGrows: what the owner grants may change; it grows, and it never shrinks under what is stored.
func TestStoreGrows(t *testing.T) {
	s := startServer(t, t.TempDir())
	for _, tc := range []struct{ grant, want int64 }{{2 << 30, 256 << 20}, {4 << 30, 512 << 20}, {2 << 30, 512 << 20}} {
		nc := connect(t, s)
		if _, err := jetstream.Open(t.Context(), nc, "hub", tc.grant); err != nil {
			t.Fatal(err)
		}
		js, err := natsjs.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := js.Stream(t.Context(), jetstream.EventStream)
		if err != nil {
			t.Fatal(err)
		}
		if got := stream.CachedInfo().Config.MaxBytes; got != tc.want {
			t.Errorf("granted %d: the log may take %d bytes, want %d", tc.grant, got, tc.want)
		}
	}
	if _, err := jetstream.Open(t.Context(), connect(t, s), "hub", jetstream.MinStore-1); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("too small a store: %v", err)
	}
}
