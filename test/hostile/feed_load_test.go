package hostile

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"tensorturn/broker"
	"tensorturn/broker/jetstream"
)

// heap is what the process, hub included, holds.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestObserverThatNeverReads publishes with no observer, then with as many as there may be that ask and never acknowledge
// or never ask: the feed must not become slower by more than a factor that noise explains, and every message is stored.
func TestObserverThatNeverReads(t *testing.T) {
	w := newFeedWorld(t)
	seq := uint64(1000)
	round := func() time.Duration {
		var ms []broker.FeedMessage
		for range 2000 {
			seq++
			ms = append(ms, broker.FeedMessage{Seq: seq, ID: fmt.Sprint("n-", seq, ".0"), Subject: "tt.v1.events.run.N.made", Data: []byte(strings.Repeat("x", 700))})
		}
		began := time.Now()
		w.must(w.feed.Publish(w.ctx(), ms))
		return time.Since(began)
	}
	round() // warm
	h0 := heap()
	alone := fastest(round)
	h1 := heap()
	for i := range 63 {
		o := w.observer(fmt.Sprint("n-", i), "N")
		if i%8 > 0 {
			continue // is there and never asks
		}
		nc, js := w.stock(o)
		t.Cleanup(nc.Close)
		c, err := js.Consumer(w.ctx(), jetstream.FeedStream, o.Account)
		w.must(err)
		_, err = c.Fetch(1000, natsjs.FetchMaxWait(20*time.Second)) // takes and never acknowledges
		w.must(err)
	}
	h2 := heap()
	crowd := fastest(round)
	h3 := heap()
	t.Logf("2,000 messages: %s alone, %s with 63 observers that do not read, ratio %.2f", alone, crowd, float64(crowd)/float64(alone))
	t.Logf("heap of this process, hub included: 24,000 messages add %d KiB alone and %d KiB with them", (int64(h1)-int64(h0))>>10, (int64(h3)-int64(h2))>>10)
	if crowd > 5*alone+time.Second {
		t.Error("observers that do not read slow the feed")
	}
	if int64(h3)-int64(h2) > 2*max(int64(h1)-int64(h0), 16<<20) {
		t.Error("memory grows for those who do not read")
	}
	if got, _, err := w.feed.Tail(w.ctx()); err != nil || got != seq {
		t.Errorf("the feed ends at %d, want %d: %v", got, seq, err)
	}
}

// fastest is the fastest of twelve rounds: what the work takes when nobody else is at the machine.
func fastest(round func() time.Duration) time.Duration {
	best := round()
	for range 11 {
		best = min(best, round())
	}
	return best
}
