package plan

import (
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

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
