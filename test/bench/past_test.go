package main

import (
	"context"
	"io"
	"testing"

	"github.com/rs/zerolog"

	"tensorturn/broker"
	"tensorturn/broker/gateway"
	"tensorturn/broker/hub"
	mem "tensorturn/broker/memory"
	"tensorturn/domain"
	"tensorturn/domain/event"
)

// pastInMemory is a past of at least n events.
func pastInMemory(t testing.TB, n int) *mem.Log {
	t.Helper()
	l := mem.NewLog(nil)
	err := inBed(io.Discard, func(d *bed) {
		c := broker.NewCommitter(l, registry())
		d.Must(c.Open(context.Background(), func(event.Envelope) error { return nil }))
		writePast(d, &bench{ctx: context.Background()}, c, n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestPastIsWhatAPoolDoes: every kind of fact that a fused run has in its middle, in runs that complete.
func TestPastIsWhatAPoolDoes(t *testing.T) {
	names := map[string]int{}
	for rec, err := range pastInMemory(t, 10_000).Read(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		e, err := event.Decode(registry(), rec.Seq, rec.Data)
		if err != nil {
			t.Fatal(err)
		}
		names[e.Data.EventName()]++
	}
	for _, n := range []string{"run.completed", "round.merged", "lease.expired", "chunks.stolen", "contribution.accepted", "chunk.trained", "machine.online"} {
		if names[n] == 0 {
			t.Errorf("no %s in %v", n, names)
		}
	}
}

// BenchmarkReplay is a start without the store: verify, decode, fold, views.
func BenchmarkReplay(b *testing.B) {
	l := pastInMemory(b, 100_000)
	last, _ := l.Last(context.Background())
	for b.Loop() {
		s := hub.NewService(hub.ServiceConfig{Core: hub.Config{Timing: domain.TimingOf(domain.DefaultLease), Process: "bench"}, Log: l, Registry: registry(), Logger: zerolog.Nop()})
		s.Follow(&viewsOfStart{Views: gateway.NewViews()})
		if err := s.Start(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		s.Stop()
		b.StartTimer()
	}
	b.ReportMetric(float64(b.N)*float64(last)/b.Elapsed().Seconds(), "events/s")
}
