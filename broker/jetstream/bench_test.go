package jetstream_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"tensorturn/broker"
	"tensorturn/broker/brokertest"
	"tensorturn/broker/jetstream"
	"tensorturn/domain"
)

// eventBytes is about what an event takes in the log: 250 bytes.
func benchRecords(command string, n int) []broker.Record {
	recs := brokertest.Records(command, n)
	for i := range recs {
		recs[i].Data = brokertest.Part(i, 250)
	}
	return recs
}

// BenchmarkAppend measures synced appends in batches, as the hub writes them.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", n), func(b *testing.B) {
			l := newStore(b).Log
			seq, i := uint64(0), 0
			for b.Loop() {
				last, err := l.Append(b.Context(), seq, benchRecords(fmt.Sprintf("c-%d", i), n))
				if err != nil {
					b.Fatal(err)
				}
				seq, i = last, i+1
			}
			b.ReportMetric(float64(seq)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func fill(b testing.TB, l *jetstream.Log, n int) {
	b.Helper()
	for seq := 0; seq < n; seq += domain.MaxBatchEvents {
		if _, err := l.Append(context.Background(), uint64(seq), benchRecords(fmt.Sprintf("c-%d", seq), domain.MaxBatchEvents)); err != nil {
			b.Fatal(err)
		}
	}
}

// cpu is the processor time that this process has used: on a shared machine the figure to compare.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRead measures a full read of 100,000 events, undecoded.
func BenchmarkRead(b *testing.B) {
	const events = 100_000
	l := newStore(b).Log
	fill(b, l, events)
	before := cpu(b)
	for b.Loop() {
		n := 0
		for _, err := range l.Read(b.Context(), 1) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != events {
			b.Fatalf("read %d events", n)
		}
	}
	b.ReportMetric(float64(b.N)*events/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N)/events, "cpu-µs/event")
}

// BenchmarkPut measures synced parts of 8 MiB: cut into messages of the server's default size, and whole as the hub has
// them.
func BenchmarkPut(b *testing.B) {
	for _, payload := range []int32{1 << 20, 8<<20 + 64<<10} {
		b.Run(fmt.Sprintf("payload=%dMiB", payload>>20), func(b *testing.B) {
			bl := openStore(b, startServer(b, b.TempDir(), maxPayload(payload))).Blobs
			i := 0
			b.SetBytes(domain.MaxPartBytes)
			for b.Loop() {
				data := brokertest.Part(i, domain.MaxPartBytes)
				if err := bl.Put(b.Context(), brokertest.Sum(data), data); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}
