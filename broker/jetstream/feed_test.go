package jetstream_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"tensorturn/broker"
	"tensorturn/broker/jetstream"
)

// told makes messages of the log's sequences from..to; every third is withheld.
func told(from, to int) []broker.FeedMessage {
	var ms []broker.FeedMessage
	for i := from; i <= to; i++ {
		if i%3 == 0 {
			continue
		}
		at := time.Unix(1_800_000_000+int64(i), 0).UTC().Format(time.RFC3339Nano)
		ms = append(ms, broker.FeedMessage{Seq: uint64(i), ID: fmt.Sprintf("c-%d.0", i), Subject: fmt.Sprintf("tt.v1.events.run.r-%d.toy_made", i%2),
			Data: fmt.Appendf(nil, `{"id":"c-%d.0","time":%q}`, i, at)})
	}
	return ms
}

func tail(t *testing.T, f *jetstream.Feed) uint64 {
	t.Helper()
	seq, id, err := f.Tail(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if seq > 0 && id != fmt.Sprintf("c-%d.0", seq) {
		t.Fatalf("the tail at %d is %s", seq, id)
	}
	return seq
}

func publish(t *testing.T, f *jetstream.Feed, ms []broker.FeedMessage) {
	t.Helper()
	if err := f.Publish(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
}

func TestFeedGoesOnBehindItsTail(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, dir)
	f := openStore(t, s).Feed
	if got := tail(t, f); got != 0 {
		t.Fatalf("an empty feed ends at %d", got)
	}
	publish(t, f, told(1, 1000)) // more than one window
	if got := tail(t, f); got != 1000 {
		t.Fatalf("tail %d", got)
	}
	stopServer(s)
	f = openStore(t, startServer(t, dir)).Feed
	if got := tail(t, f); got != 1000 {
		t.Fatalf("tail after a restart %d", got)
	}
	publish(t, f, told(1001, 1010))
	if got := tail(t, f); got != 1010 {
		t.Fatalf("tail %d", got)
	}
}

// TestFeedRefusesASecondPublisher: whoever has not seen the newest tail publishes nothing.
func TestFeedRefusesASecondPublisher(t *testing.T) {
	s := startServer(t, t.TempDir())
	a, b := openStore(t, s).Feed, openStore(t, s).Feed
	tail(t, a)
	tail(t, b)
	publish(t, a, told(1, 2))
	for _, ms := range [][]broker.FeedMessage{told(1, 1), told(4, 5)} {
		if err := b.Publish(t.Context(), ms); err == nil {
			t.Errorf("%s was stored twice or out of order", ms[0].ID)
		}
	}
	if got := tail(t, b); got != 2 {
		t.Fatalf("tail %d", got)
	}
	publish(t, b, told(4, 5))
}

// TestObserverBegins checks where consumers begin, and that one that is there keeps its place.
func TestObserverBegins(t *testing.T) {
	s := startServer(t, t.TempDir())
	f := openStore(t, s).Feed
	tail(t, f)
	publish(t, f, told(1, 100))
	for name, tc := range map[string]struct {
		o     jetstream.Observer
		first string
	}{
		"all":        {jetstream.Observer{}, "c-1.0"},
		"from":       {jetstream.Observer{From: 50}, "c-50.0"},
		"from gap":   {jetstream.Observer{From: 51}, "c-52.0"}, // 51 is withheld
		"from one":   {jetstream.Observer{From: 1}, "c-1.0"},
		"since":      {jetstream.Observer{Since: time.Unix(1_800_000_070, 0)}, "c-70.0"},
		"since then": {jetstream.Observer{Since: time.Unix(1_700_000_000, 0)}, "c-1.0"},
		"of a run":   {jetstream.Observer{From: 50, Filter: "tt.v1.events.run.r-1.>"}, "c-53.0"},
		"what comes": {jetstream.Observer{From: 101}, "c-101.0"},
	} {
		o := tc.o
		o.Consumer = "o" + fmt.Sprintf("%x", name)
		if o.Filter == "" {
			o.Filter = "tt.v1.events.>"
		}
		if err := f.AdmitObserver(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if name == "what comes" {
			publish(t, f, told(101, 103))
		}
		if got := next(t, s, o.Consumer); got != tc.first {
			t.Errorf("%s begins with %s, want %s", name, got, tc.first)
		}
		if err := f.AdmitObserver(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if got := next(t, s, o.Consumer); got == tc.first {
			t.Errorf("%s: admitted again, it began anew", name)
		}
	}
}

// next takes and acknowledges the consumer's next message and gives its id.
func next(t *testing.T, s *server.Server, consumer string) string {
	t.Helper()
	js, err := natsjs.New(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	c, err := js.Consumer(t.Context(), jetstream.FeedStream, consumer)
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Next(natsjs.FetchMaxWait(10 * time.Second))
	if err != nil {
		return err.Error()
	}
	if err := m.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m.Headers().Get("Nats-Msg-Id")
}

func TestObserversComeAndGo(t *testing.T) {
	f := newStore(t).Feed
	for _, c := range []string{"A", "B"} {
		if err := f.AdmitObserver(t.Context(), jetstream.Observer{Consumer: c, Filter: "tt.v1.events.>"}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := f.DismissObserver(t.Context(), "A"); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := f.Observers(t.Context()); err != nil || !slices.Equal(got, []string{"B"}) {
		t.Fatalf("%v %v", got, err)
	}
	if waiting, unacked, err := f.ObserverLag(t.Context(), "B"); err != nil || waiting != 0 || unacked != 0 {
		t.Fatalf("%d %d %v", waiting, unacked, err)
	}
}

// TestFeedIsNotChanged tries what DenyDelete and DenyPurge forbid.
func TestFeedIsNotChanged(t *testing.T) {
	s := startServer(t, t.TempDir())
	f := openStore(t, s).Feed
	tail(t, f)
	publish(t, f, told(1, 2))
	js, err := natsjs.New(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	st, err := js.Stream(t.Context(), jetstream.FeedStream)
	if err != nil {
		t.Fatal(err)
	}
	if st.DeleteMsg(t.Context(), 1) == nil || st.Purge(t.Context()) == nil {
		t.Error("a message of the feed was removed")
	}
	if got := tail(t, f); got != 2 {
		t.Errorf("tail %d", got)
	}
}

var _ broker.Feed = (*jetstream.Feed)(nil)
