package agent

import (
	"testing"
	"time"

	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/run"
)

// BenchmarkCoreChunk is one chunk's way through Core: trained, reported, answered. The slot holds 100 chunks on average.
func BenchmarkCoreChunk(b *testing.B) {
	const most = 200
	var c *Core
	var counter uint64
	var claims []domain.ChunkID
	now := time.Duration(0)
	answer := func() {
		now += 10 * time.Millisecond
		d := wire.SlotDesire{Run: "r", Epoch: 7, Unit: run.UnitTrain, Base: "b", Number: 1, Claims: claims, Job: &wire.Job{}}
		c.Step(now, Replied{Counter: counter, Reply: &wire.SyncReply{Interval: 5, Lease: 120, Slots: []wire.SlotDesire{d}}})
	}
	b.ReportAllocs()
	for i := range b.N {
		k := i % most
		if k == 0 {
			c, counter, now = NewCore(CoreConfig{Incarnation: "i", Slots: 1}), 1, 0
			claims = []domain.ChunkID{0, 1}
			c.Step(now, Tick{})
			answer()
			c.Step(now, Prepared{Epoch: 7})
		}
		now += 10 * time.Millisecond
		claims = append(claims, domain.ChunkID(k+2))
		for _, e := range c.Step(now, ChunkTrained{Epoch: 7, Chunk: domain.ChunkID(k), Samples: 10, Steps: 1, Seconds: 1}) {
			if s, ok := e.(SendSync); ok {
				counter = s.Request.Counter
			}
		}
		counter = c.contact.counter
		answer()
	}
}

// BenchmarkPush sends a blob of four parts over loopback, cache and SHA-256 included.
func BenchmarkPush(b *testing.B) {
	s := newBlobServer(b)
	st := s.store(b)
	id, m := write(b, st, 4*domain.MaxPartBytes)
	b.SetBytes(m.Size)
	for b.Loop() {
		s.set(func() { clear(s.objects) })
		if err := st.push(b.Context(), id, func(int64) {}); err != nil {
			b.Fatal(err)
		}
	}
}
