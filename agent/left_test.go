package agent

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/agent/cache"
	"tensorturn/agent/trainer/builtin"
	"tensorturn/broker/wire"
	"tensorturn/domain"
)

// A process that ends without a word leaves what its slots have trained; the next one over the same folder says so in its
// first word, and names only snapshots that are there.
func TestNextProcessTellsWhatIsLeft(t *testing.T) {
	r := newRig(t, 1, builtin.Open, nil)
	r.hub.claim = func(int, int) []domain.ChunkID { // all of an epoch: no contribution comes before the end
		var all []domain.ChunkID
		for c := range 20 {
			all = append(all, domain.ChunkID(c))
		}
		return all
	}
	dir := t.TempDir()
	c, err := cache.Open(dir, cache.Options{Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	start := func(incarnation domain.Incarnation, c *cache.Cache) *Agent {
		t.Helper()
		a, err := New(Config{Incarnation: incarnation, Slots: 1, Build: "test", Seed: 1, Transport: r.hub, Blobs: r.store.client(t),
			Cache: c, Trainer: builtin.Open, Throttle: 0.02, Log: zerolog.New(zerolog.SyncWriter(r.log))})
		if err != nil {
			t.Fatal(err)
		}
		quick := func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
		a.store.up.pause, a.store.down.pause = quick, quick
		t.Cleanup(a.Stop)
		if err := a.Start(); err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := start("i-1", c)
	await := func(what string, ok func(wire.SyncRequest) bool) wire.SyncRequest {
		t.Helper()
		limit := time.After(patience)
		for {
			select {
			case q := <-r.hub.seen:
				if ok(q) {
					return q
				}
			case <-limit:
				t.Fatalf("no word of %s; the log:\n%s", what, r.log)
			}
		}
	}
	held := await("two trained chunks", func(q wire.SyncRequest) bool { return len(q.Slots[0].Trained) >= 2 }).Slots[0]
	first.Stop()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	r.hub.set(func() { r.hub.counter, r.hub.fail = 0, true })
	for done := false; !done; { // words of the first process
		select {
		case <-r.hub.seen:
		default:
			done = true
		}
	}
	if c, err = cache.Open(dir, cache.Options{Reserve: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	second := start("i-2", c)
	q := await("the second process", func(q wire.SyncRequest) bool { return q.Incarnation == "i-2" })
	second.Stop()
	late := q.Slots[0].Late
	if late == nil || late.Run != held.Run || late.Epoch != held.Epoch || late.Number != held.Number || len(late.Boundaries) == 0 {
		t.Fatalf("the first process held lease %d, number %d; the second one says %+v", held.Epoch, held.Number, late)
	}
	for i, x := range held.Trained {
		if i >= len(late.Chunks) || late.Chunks[i] != x.Chunk {
			t.Errorf("the hub had heard of %v, now it hears of %v", held.Trained, late.Chunks)
			break
		}
	}
	if newest := late.Boundaries[len(late.Boundaries)-1]; newest != len(late.Chunks) {
		t.Errorf("the newest snapshot is of %d chunks, %d were trained", newest, len(late.Chunks))
	}
}
