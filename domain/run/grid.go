package run

import (
	"tensorturn/domain"
	"tensorturn/domain/permute"
)

// grid is how the samples of all epochs are cut into chunks. The chunks of an epoch are consecutive ranges of that
// epoch's permutation; the last one of each epoch may be shorter.
type grid struct {
	n        int // samples of an epoch
	size     int // samples of a full chunk
	epochs   int
	perEpoch int // chunks of an epoch
}

func gridOf(s *Spec, d *Dataset) grid {
	return grid{n: d.Samples, size: s.Chunk, epochs: s.Epochs, perEpoch: (d.Samples + s.Chunk - 1) / s.Chunk}
}

// at gives the chunk's epoch, the position of its first sample in that epoch's permutation, and its samples.
func (g grid) at(c domain.ChunkID) (epoch, first, n int) {
	epoch, first = int(c)/g.perEpoch, int(c)%g.perEpoch*g.size
	return epoch, first, min(g.size, g.n-first)
}

// sum is the number of samples in the chunks.
func (g grid) sum(cs []domain.ChunkID) int64 {
	var sum int64
	for _, c := range cs {
		_, _, n := g.at(c)
		sum += int64(n)
	}
	return sum
}

// steps is the number of optimizer steps that the chunks take: each ends with a batch of what is left.
func (g grid) steps(cs []domain.ChunkID, batch int) int {
	sum := 0
	for _, c := range cs {
		_, _, n := g.at(c)
		sum += (n + batch - 1) / batch
	}
	return sum
}

// The functions below take a resolved spec.

// ChunksPerEpoch is the number of chunks of one pass over the training part.
func ChunksPerEpoch(s Spec, d Dataset) int { return gridOf(&s, &d).perEpoch }

// TotalChunks is the number of chunks of the run.
func TotalChunks(s Spec, d Dataset) int { return s.Epochs * ChunksPerEpoch(s, d) }

// TotalSamples is epochs × N: what the ledger must have counted in the end.
func TotalSamples(s Spec, d Dataset) int64 { return int64(s.Epochs) * int64(d.Samples) }

// ChunkRange gives the chunk's epoch (from 0), the position of its first sample in that epoch's permutation, and its
// number of samples. The last chunk of an epoch may have fewer than the others.
func ChunkRange(s Spec, d Dataset, c domain.ChunkID) (epoch, first, n int) {
	return gridOf(&s, &d).at(c)
}

// ChunkSamples is the number of samples in the chunk.
func ChunkSamples(s Spec, d Dataset, c domain.ChunkID) int {
	_, _, n := gridOf(&s, &d).at(c)
	return n
}

// ChunkSteps is the number of optimizer steps in the chunk; the last one may have a smaller batch.
func ChunkSteps(s Spec, d Dataset, c domain.ChunkID) int {
	return (ChunkSamples(s, d, c) + s.Batch - 1) / s.Batch
}

// Position is the run's sample clock at the start of the chunk: the samples that come before it in the permutations of
// all epochs, whoever trains them and whenever. Learning-rate schedules run on it.
func Position(s Spec, d Dataset, c domain.ChunkID) int64 {
	epoch, first, _ := ChunkRange(s, d, c)
	return int64(epoch)*int64(d.Samples) + int64(first)
}

// Planned is the number of rounds when nothing is carried over; an ensemble has none.
func Planned(s Spec, d Dataset) int {
	if s.IsEnsemble() {
		return 0
	}
	return (TotalChunks(s, d) + s.Round.Chunks - 1) / s.Round.Chunks
}

// Permutation is the order of the samples of one epoch (from 0): seeded, shuffled in blocks of block samples.
func Permutation(seed uint64, epoch, n, block int) *permute.Order {
	return permute.New(seed, epoch, n, block)
}

// ChunkIndices appends to dst the training rows of the chunk in training order, and returns it. order must be the
// permutation of the chunk's epoch.
func ChunkIndices(dst []int, order *permute.Order, s Spec, d Dataset, c domain.ChunkID) []int {
	_, first, n := ChunkRange(s, d, c)
	return order.Append(dst, first, n)
}
