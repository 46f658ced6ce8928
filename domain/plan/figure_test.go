package plan

import (
	"math"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

func TestFigure(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 1: "1", 12: "12", 1234.5: "1235", 12.345: "12.3", 0.012345: "0.0123", 99.96: "100", 1e9: "1000000000", -3.14159: "-3.14", math.Inf(1): "+Inf"} {
		if got := figure(x); got != want {
			t.Errorf("figure(%v) = %q, want %q", x, got, want)
		}
	}
}

// TestSizes compares the quick way to a chunk's samples with the run's own.
func TestSizes(t *testing.T) {
	for _, samples := range []int{1, 9, 10, 11, 95, 100} {
		spec, data := run.Spec{Chunk: 10, Epochs: 3}, run.Dataset{Samples: samples}
		z := sizes{n: samples, chunk: spec.Chunk, perEpoch: run.ChunksPerEpoch(spec, data)}
		for c := range domain.ChunkID(run.TotalChunks(spec, data)) {
			if got, want := z.of(c), run.ChunkSamples(spec, data, c); got != want {
				t.Errorf("%d samples: chunk %d has %d, want %d", samples, c, got, want)
			}
		}
		for _, cs := range [][]domain.ChunkID{nil, {0}, {1, 0}, {0, 1, 2}, {2, 0, 1}} {
			var want float64
			for i, c := range cs {
				cs[i] = c % domain.ChunkID(run.TotalChunks(spec, data))
				want += float64(z.of(cs[i]))
			}
			if got := z.sum(cs); got != want {
				t.Errorf("%d samples: %v have %v, want %v", samples, cs, got, want)
			}
		}
		all := make([]domain.ChunkID, run.TotalChunks(spec, data))
		for i := range all {
			all[i] = domain.ChunkID(i)
		}
		if got := z.sum(all); got != float64(run.TotalSamples(spec, data)) {
			t.Errorf("%d samples: all chunks have %v, want %d", samples, got, run.TotalSamples(spec, data))
		}
	}
}
