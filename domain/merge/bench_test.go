//go:build linux

package merge

import (
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cpu is the processor time of this process so far. Speeds are measured by it, because a machine that does something
// else at the same time would spoil a clock.
func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// perValue reports processor time since start per value, and values of four bytes as a speed.
func perValue(b *testing.B, start time.Duration, values int) float64 {
	ns := float64((cpu(b) - start).Nanoseconds()) / float64(b.N) / float64(values)
	b.ReportMetric(ns, "cpu-ns/value")
	b.ReportMetric(4/ns, "cpu-GB/s")
	return ns
}

// copySpeed is what Go's copy does with n bytes that are read and written, in seconds of
// processor time: the best of three.
func copySpeed(tb testing.TB, n int64) float64 {
	const chunk = 64 << 20 // beyond every cache
	src, dst := make([]byte, chunk), make([]byte, chunk)
	copy(dst, src)
	best := math.Inf(1)
	for range 3 {
		start := cpu(tb)
		for left := n / 2; left > 0; left -= chunk {
			copy(dst, src[:min(left, chunk)])
		}
		best = min(best, (cpu(tb) - start).Seconds())
	}
	return best
}

// BenchmarkMerge merges 8 deltas of 8 million parameters. The metric copies is the time over that of Go's copy for as
// many bytes, read and written together.
func BenchmarkMerge(b *testing.B) {
	const matrices, k = 8, 8
	const n = matrices << 20
	for codec, bits := range map[Codec]float64{CodecFP32: 32, CodecE3M0: 4.125} {
		b.Run(string(codec), func(b *testing.B) {
			l := newLarge(matrices)
			moved := int64(n * (k*bits/8 + 4 + 8 + 4 + 8))
			start := cpu(b)
			for b.Loop() {
				if _, err := Merge(l.job(b, codec, k)); err != nil {
					b.Fatal(err)
				}
			}
			ns := perValue(b, start, n)
			b.ReportMetric(ns*n/1e9/copySpeed(b, moved), "copies")
		})
	}
}

// BenchmarkE3M0 codes and decodes a million values; bytes are those of the values.
func BenchmarkE3M0(b *testing.B) {
	d := make([]float32, 1_000_000)
	x := uint64(1)
	for i := range d {
		x = x*6364136223846793005 + 1442695040888963407
		d[i] = float32(math.Ldexp(float64(x>>33)/(1<<31)-0.5, -int(x>>60)))
	}
	code := encodeAll(d)
	b.Run("encode", func(b *testing.B) {
		start := cpu(b)
		for b.Loop() {
			for at := 0; at < len(d); at += BlockValues {
				encodeBlock(code[at/BlockValues*blockBytes:], d[at:min(at+BlockValues, len(d))])
			}
		}
		perValue(b, start, len(d))
	})
	b.Run("decode", func(b *testing.B) {
		out := make([]float64, BlockValues)
		start := cpu(b)
		for b.Loop() {
			for at := 0; at < len(d); at += BlockValues {
				block := code[at/BlockValues*blockBytes:]
				scale, _, _ := scaleOf(block)
				table := levels(scale)
				decodeBlock(out[:min(BlockValues, len(d)-at)], block, &table)
			}
		}
		perValue(b, start, len(d))
	})
}

// BenchmarkMemory8x100M merges 8 deltas of 100 million parameters and reports the process's peak memory. Run it alone:
//
//	go test -run '^$' -bench Memory8x100M -benchtime 1x ./domain/merge
func BenchmarkMemory8x100M(b *testing.B) {
	l := newLarge(96)
	for _, codec := range []Codec{CodecE3M0, CodecFP32} {
		b.Run(string(codec), func(b *testing.B) {
			for b.Loop() {
				if _, err := Merge(l.job(b, codec, 8)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(peakMiB(b), "peak-MiB")
		})
	}
}

// peakMiB is the most resident memory the process has had, 0 where the system does not say.
func peakMiB(tb testing.TB) float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			if err != nil {
				tb.Fatal(err)
			}
			return kib / 1024
		}
	}
	return 0
}
