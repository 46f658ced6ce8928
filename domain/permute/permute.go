// Package permute gives the seeded order in which an epoch visits its samples, and the small random source behind it.
// The order is shuffled in blocks: the blocks among themselves, then the samples within each block, so that a slot that
// trains a few neighbouring chunks reads only a few blocks of the data.
//
// It is pure arithmetic: the same seed gives the same order on every machine for ever (testdata and golden vectors hold
// it), since a recorded run is replayed by it. domain/run and domain/dataset call it, and so do trainers.
package permute

import "fmt"

// Order is the order of one epoch. It remembers the block it worked out last and is not safe for concurrent use.
type Order struct {
	seed   uint64
	epoch  int
	n      int   // samples
	block  int   // samples of a full block
	blocks []int // block numbers in the order they are visited
	short  int   // place in blocks of the shorter last block, len(blocks) when all are full
	held   int   // place of the block in samples, -1 when none
	inside []int // that block's samples in visiting order
}

// Labels that tell the two uses of one seed apart.
const (
	labelBlocks  = 1
	labelSamples = 2
)

// New gives the order of epoch (from 0) over n samples in blocks of block samples. A block below 1 or above n means one
// block of all samples. It costs memory for n/block numbers; samples are worked out block by block as they are asked.
func New(seed uint64, epoch, n, block int) *Order {
	if n < 0 || epoch < 0 {
		panic(fmt.Sprintf("broken promise: an order needs samples and epoch from 0, not %d and %d", n, epoch))
	}
	if block < 1 || block > n {
		block = max(n, 1)
	}
	o := &Order{seed: seed, epoch: epoch, n: n, block: block, held: -1}
	o.blocks = make([]int, (n+block-1)/block)
	for i := range o.blocks {
		o.blocks[i] = i
	}
	NewSource(seed, uint64(epoch), labelBlocks).Shuffle(o.blocks)
	o.short = len(o.blocks)
	if n%block != 0 {
		for at, b := range o.blocks {
			if b == len(o.blocks)-1 {
				o.short = at
			}
		}
	}
	return o
}

// Len is the number of samples.
func (o *Order) Len() int { return o.n }

// Append appends the samples at positions first to first+count−1 of the epoch to dst and returns it.
func (o *Order) Append(dst []int, first, count int) []int {
	if first < 0 || count < 0 || first+count > o.n {
		panic(fmt.Sprintf("broken promise: positions %d to %d lie within an epoch of %d samples", first, first+count, o.n))
	}
	for count > 0 {
		place, start := o.locate(first)
		in := o.samples(place)
		take := in[first-start:]
		take = take[:min(len(take), count)]
		dst = append(dst, take...)
		first, count = first+len(take), count-len(take)
	}
	return dst
}

// All is the whole order.
func (o *Order) All() []int { return o.Append(make([]int, 0, o.n), 0, o.n) }

// locate finds the place in blocks of the block that covers position pos, and the position where it starts. All blocks
// are equal but one, so no search is needed.
func (o *Order) locate(pos int) (place, start int) {
	edge := o.short * o.block
	if pos < edge {
		return pos / o.block, pos / o.block * o.block
	}
	tail := o.n % o.block
	if o.short < len(o.blocks) && pos < edge+tail {
		return o.short, edge
	}
	full := (pos - tail) / o.block
	return full + 1, full*o.block + tail
}

// samples works out the visiting order within the block at place, or returns it when it was the last one asked.
func (o *Order) samples(place int) []int {
	if o.held == place {
		return o.inside
	}
	b := o.blocks[place]
	first := b * o.block
	o.inside = o.inside[:0]
	for i := first; i < min(first+o.block, o.n); i++ {
		o.inside = append(o.inside, i)
	}
	NewSource(o.seed, uint64(o.epoch), labelSamples, uint64(b)).Shuffle(o.inside)
	o.held = place
	return o.inside
}
