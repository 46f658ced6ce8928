package run_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// The chunks of a run cut all epochs without gap or overlap, and the sample clock runs through them.
func TestChunksCoverEveryEpoch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := dataset(rapid.IntRange(2, 500).Draw(t, "samples"))
		s := run.Spec{Batch: rapid.IntRange(1, 40).Draw(t, "batch"), Epochs: rapid.IntRange(1, 4).Draw(t, "epochs")}
		s.Chunk = s.Batch * rapid.IntRange(1, 5).Draw(t, "batches")
		var clock int64
		next, steps := 0, 0
		for c := range domain.ChunkID(run.TotalChunks(s, d)) {
			epoch, first, n := run.ChunkRange(s, d, c)
			if n < 1 || n > s.Chunk || run.ChunkSamples(s, d, c) != n {
				t.Fatalf("chunk %d has %d samples", c, n)
			}
			if first != next%d.Samples || epoch != next/d.Samples || run.Position(s, d, c) != clock {
				t.Fatalf("chunk %d begins at %d of epoch %d, position %d; %d samples came before", c, first, epoch, run.Position(s, d, c), clock)
			}
			next, clock, steps = next+n, clock+int64(n), steps+run.ChunkSteps(s, d, c)
		}
		if clock != run.TotalSamples(s, d) {
			t.Fatalf("%d of %d samples", clock, run.TotalSamples(s, d))
		}
		perEpoch := (d.Samples + s.Batch - 1) / s.Batch
		if steps != s.Epochs*perEpoch {
			t.Fatalf("%d steps, plain training takes %d", steps, s.Epochs*perEpoch)
		}
	})
}

func TestChunkIndicesFollowThePermutation(t *testing.T) {
	d := dataset(25)
	d.Block = 8
	s := run.Spec{Batch: 5, Chunk: 10, Epochs: 2}
	for epoch := range 2 {
		order := run.Permutation(3, epoch, d.Samples, d.Block)
		var got []int
		for c := epoch * 3; c < epoch*3+3; c++ {
			got = run.ChunkIndices(got, order, s, d, domain.ChunkID(c))
		}
		if !slices.Equal(got, order.All()) {
			t.Errorf("epoch %d: %v, the permutation is %v", epoch, got, order.All())
		}
	}
}
