package feed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"tensorturn/broker"
	"tensorturn/broker/feed"
	"tensorturn/broker/memory"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/pool"
	"tensorturn/domain/run"
	render "tensorturn/projections/feed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait.
const patience = 20 * time.Second

// hub is a log with its writer, as the hub's Service drives it.
type hub struct {
	t   testing.TB
	log *memory.Log
	reg *event.Registry
	c   *broker.Committer
	n   int
}

func newHub(t testing.TB) *hub {
	t.Helper()
	h := &hub{t: t, log: memory.NewLog(nil), reg: event.NewRegistry()}
	run.Register(h.reg)
	pool.Register(h.reg)
	h.c = broker.NewCommitter(h.log, h.reg)
	h.must(h.c.Open(t.Context(), func(event.Envelope) error { return nil }))
	return h
}

func (h *hub) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// commit writes n events, every fourth withheld, and gives them to the sources.
func (h *hub) commit(n int, to ...*feed.Source) {
	h.t.Helper()
	g := broker.Group{Command: domain.CommandID(fmt.Sprint("c-", h.n)), Actor: "operator"}
	for range n {
		h.n++
		if h.n%4 == 0 {
			g.Events = append(g.Events, event.Event{Kind: event.KindPool, ID: pool.ID, Data: &pool.TokenRevoked{Token: "t"}})
			continue
		}
		g.Events = append(g.Events, event.Event{Kind: event.KindRun, ID: fmt.Sprint("r-", h.n%2), Data: &run.ChunkTrained{Slot: "m/0", Chunk: domain.ChunkID(h.n)}})
	}
	es, err := h.c.Commit(h.t.Context(), time.Unix(1e9, 0), []broker.Group{g})
	h.must(err)
	for _, s := range to {
		s.Note(es)
	}
}

// source is what a hub that has just read its log has.
func (h *hub) source() *feed.Source {
	s := feed.NewSource(h.log, h.reg, render.NewFormat(h.reg, "h"))
	h.must(broker.NewCommitter(h.log, h.reg).Open(h.t.Context(), func(e event.Envelope) error { s.Note([]event.Envelope{e}); return nil }))
	s.GoLive()
	return s
}

// told is how many of the first n events others are told.
func told(n int) int { return n - n/4 }

// sink is a feed in memory. fault says what happens to one message of a Publish.
type sink struct {
	mu    sync.Mutex
	ms    []broker.FeedMessage
	fault func() fault
	tails int
}

type fault int

const (
	none    fault = iota
	refused       // nothing more is stored
	lost          // it is stored, and the publisher is told that it failed
)

var errSink = errors.New("the feed is away")

// Mend finds nothing: the stream's own test does.
func (s *sink) Mend(context.Context) (string, error) { return "", nil }

func (s *sink) Tail(context.Context) (uint64, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tails++
	if len(s.ms) == 0 {
		return 0, "", nil
	}
	m := s.ms[len(s.ms)-1]
	return m.Seq, m.ID, nil
}

func (s *sink) Publish(_ context.Context, ms []broker.FeedMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range ms {
		f := none
		if s.fault != nil {
			f = s.fault()
		}
		if f == refused {
			return errSink
		}
		s.ms = append(s.ms, m)
		if f == lost {
			return errSink
		}
	}
	return nil
}

// check demands every told event of the first n once and in order.
func (s *sink) check(t *testing.T, n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ms) != told(n) {
		t.Errorf("%d messages, want %d", len(s.ms), told(n))
	}
	last := uint64(0)
	for _, m := range s.ms {
		want := last + 1
		if want%4 == 0 {
			want++
		}
		if m.Seq != want {
			t.Fatalf("event %d follows %d, want %d", m.Seq, last, want)
		}
		last = m.Seq
	}
}

func wait(t *testing.T, p *feed.Publisher, seq int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Wait(ctx, uint64(seq)); err != nil {
		t.Fatal(err)
	}
}

func TestPublisherTellsEachEventOnce(t *testing.T) {
	h, out := newHub(t), &sink{}
	h.commit(1000) // before the start: more than a batch, read from the log
	s := h.source()
	p := feed.NewPublisher(out, s, zerolog.Nop())
	p.Start()
	defer p.Stop()
	for i := range 50 {
		h.commit(1+i%7, s)
	}
	wait(t, p, h.n)
	out.check(t, h.n)
	if out.tails != 1 {
		t.Errorf("the tail was asked %d times", out.tails)
	}
}

// TestPublisherAcrossRestartsAndFaults stops publishers at random moments, between feeds that refuse and answers that get
// lost, while the hub goes on: no gap and no double.
func TestPublisherAcrossRestartsAndFaults(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	h, out := newHub(t), &sink{}
	luck, faults := rand.New(rand.NewPCG(8, 8)), 0 // under the sink's lock
	out.fault = func() fault {
		if luck.IntN(400) == 0 {
			faults++
			return refused + fault(luck.IntN(2))
		}
		return none
	}
	for range 12 {
		s := h.source()
		p := feed.NewPublisher(out, s, zerolog.Nop())
		p.Start()
		for range 1 + r.IntN(20) {
			h.commit(1+r.IntN(40), s)
		}
		p.Stop()
	}
	out.mu.Lock()
	out.fault = nil
	out.mu.Unlock()
	s := h.source()
	p := feed.NewPublisher(out, s, zerolog.Nop())
	p.Start()
	defer p.Stop()
	wait(t, p, h.n)
	out.check(t, h.n)
	if faults == 0 {
		t.Error("nothing went wrong, so nothing was shown")
	}
}

// TestRepeatedNotesAreDropped: a hub that rebuilt its state from the log tells again what it told before.
func TestRepeatedNotesAreDropped(t *testing.T) {
	h, out := newHub(t), &sink{}
	s := h.source()
	p := feed.NewPublisher(out, s, zerolog.Nop())
	p.Start()
	defer p.Stop()
	for range 5 {
		h.commit(10, s)
		h.must(broker.NewCommitter(h.log, h.reg).Open(t.Context(), func(e event.Envelope) error { s.Note([]event.Envelope{e}); return nil }))
	}
	wait(t, p, h.n)
	out.check(t, h.n)
}

// TestFeedOfAnotherLogIsNamed: a log that was restored from a backup went another way.
func TestFeedOfAnotherLogIsNamed(t *testing.T) {
	for name, ms := range map[string][]broker.FeedMessage{
		"another event": {{Seq: 3, ID: "c-other.0"}},
		"ahead":         {{Seq: 9, ID: "c-0.8"}},
	} {
		h := newHub(t)
		h.commit(5)
		p := feed.NewPublisher(&sink{ms: ms}, h.source(), zerolog.Nop())
		p.Start()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := p.Wait(ctx, 5)
		cancel()
		p.Stop()
		if _, why := p.Status(); err == nil || domain.KindOf(why) != domain.KindIntegrity {
			t.Errorf("%s: %v, %v", name, err, why)
		}
	}
}

// TestFollowersGetTheirOwnPlace follows from several places, across the edge between log and memory.
func TestFollowersGetTheirOwnPlace(t *testing.T) {
	h := newHub(t)
	h.commit(500)
	s := h.source()
	for range 11 {
		h.commit(900, s) // more than is kept
	}
	for _, after := range []int{0, 1, 499, 500, 501, h.n - 8193, h.n - 4097, h.n - 1} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		got, upto := 0, uint64(after)
		for b, err := range s.Follow(ctx, uint64(after)) {
			h.must(err)
			if len(b.Messages) > 256 {
				t.Fatalf("a batch of %d", len(b.Messages))
			}
			for _, m := range b.Messages {
				if m.Seq <= upto || m.Seq > b.Upto {
					t.Fatalf("after %d: %d is not within %d..%d", after, m.Seq, upto, b.Upto)
				}
				got++
			}
			if upto = b.Upto; upto == uint64(h.n) {
				break
			}
		}
		if want := told(h.n) - told(after); got != want {
			t.Errorf("after %d: %d events, want %d", after, got, want)
		}
		cancel()
	}
}

func TestBefore(t *testing.T) {
	h := newHub(t)
	for i := range 20 {
		g := broker.Group{Command: domain.CommandID(fmt.Sprint("t-", i)), Actor: "hub", Events: []event.Event{{Kind: event.KindRun, ID: "r", Data: &run.Resumed{}}}}
		_, err := h.c.Commit(t.Context(), time.Unix(int64(1000+10*i), 0), []broker.Group{g})
		h.must(err)
	}
	s := h.source()
	for at, want := range map[int64]uint64{0: 0, 1000: 0, 1001: 1, 1010: 1, 1011: 2, 1190: 19, 1191: 20, 5000: 20} {
		if got, err := s.Before(t.Context(), time.Unix(at, 0)); err != nil || got != want {
			t.Errorf("before %d: %d %v, want %d", at, got, err, want)
		}
	}
}

// BenchmarkNote is what an event costs the hub's loop.
func BenchmarkNote(b *testing.B) {
	h := newHub(b)
	s := h.source()
	e := event.Envelope{Kind: event.KindRun, Agg: "r-1", ID: "c-1.0", Cause: "c-1", Actor: "machine:m-1", Time: time.Unix(1e9, 0), Version: 1,
		Data: &run.ContributionAccepted{Slot: "m-1/0", Epoch: 7, Number: 3, Chunks: []domain.ChunkID{1, 2, 3, 4, 5, 6, 7, 8}, Samples: 4096, Norm: 1.25}}
	for b.Loop() {
		e.Seq++
		s.Note([]event.Envelope{e})
	}
}
