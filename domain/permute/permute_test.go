package permute_test

import (
	"bytes"
	"compress/flate"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tensorturn/domain/permute"
)

// The numbers below are for ever: recorded runs are replayed by them.
func TestGoldenOrder(t *testing.T) {
	tests := []struct {
		name           string
		seed           uint64
		epoch, n, size int
		want           []int
	}{
		{"one block", 1, 0, 8, 8, []int{2, 4, 7, 5, 1, 3, 0, 6}},
		{"blocks of three, the last one short", 1, 0, 10, 3, []int{9, 1, 0, 2, 5, 3, 4, 6, 7, 8}},
		{"next epoch", 1, 1, 10, 3, []int{0, 2, 1, 5, 4, 3, 9, 6, 8, 7}},
		{"other seed", 2, 0, 10, 3, []int{9, 6, 7, 8, 2, 1, 0, 4, 5, 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, permute.New(tt.seed, tt.epoch, tt.n, tt.size).All()); d != "" {
				t.Error(d)
			}
		})
	}
}

// SplitMix64 from state 0: the first numbers of the published generator (its C text gives 16294208416658607535 first).
func TestSourceIsSplitMix64(t *testing.T) {
	var s permute.Source
	got := []uint64{s.Uint64(), s.Uint64(), s.Uint64()}
	want := []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestOrderVisitsEachSampleOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 300).Draw(t, "n")
		block := rapid.IntRange(-1, 320).Draw(t, "block")
		o := permute.New(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 9).Draw(t, "epoch"), n, block)
		all := o.All()
		for i, v := range slices.Sorted(slices.Values(all)) {
			if i != v {
				t.Fatalf("sorted order holds %d at %d", v, i)
			}
		}
		if len(all) != n {
			t.Fatalf("%d of %d samples", len(all), n)
		}
		first := rapid.IntRange(0, n).Draw(t, "first")
		count := rapid.IntRange(0, n-first).Draw(t, "count")
		if got := o.Append(nil, first, count); !slices.Equal(got, all[first:first+count]) {
			t.Fatalf("positions %d to %d are %v, in the whole order %v", first, first+count, got, all[first:first+count])
		}
	})
}

func TestNeighboursShareBlocks(t *testing.T) {
	o := permute.New(7, 0, 1000, 100)
	for first := 0; first < 1000; first += 50 {
		blocks := map[int]bool{}
		for _, v := range o.Append(nil, first, 50) {
			blocks[v/100] = true
		}
		if len(blocks) > 2 {
			t.Errorf("50 samples from %d touch %d blocks", first, len(blocks))
		}
	}
}

// A biased draw would favour small numbers: with a bound of 3 × 2^62 the low third would come twice as often.
func TestBelowIsUnbiased(t *testing.T) {
	s := permute.NewSource(1)
	const n, draws = 3 << 62, 30000
	low := 0
	for range draws {
		v := s.Below(n)
		if v >= n {
			t.Fatalf("%d is not below %d", v, uint64(n))
		}
		if v < n/3 {
			low++
		}
	}
	if low < draws/3-600 || low > draws/3+600 { // 7 standard deviations
		t.Errorf("%d of %d draws in the low third", low, draws)
	}
}

func TestLabelsTellStreamsApart(t *testing.T) {
	a, b, c := permute.NewSource(1, 2, 3), permute.NewSource(1, 3, 2), permute.NewSource(1)
	x, y, z := a.Uint64(), b.Uint64(), c.Uint64()
	if x == y || y == z || x == z {
		t.Errorf("equal first numbers: %x %x %x", x, y, z)
	}
}

func TestFloat64StaysInRange(t *testing.T) {
	s := permute.NewSource(5)
	sum := 0.0
	for range 10000 {
		v := s.Float64()
		if v < 0 || v >= 1 {
			t.Fatal(v)
		}
		sum += v
	}
	if sum < 4800 || sum > 5200 {
		t.Errorf("mean %v", sum/10000)
	}
}

func BenchmarkChunkOfLargeEpoch(b *testing.B) {
	o := permute.New(1, 0, 100_000_000, 32768)
	dst := make([]int, 0, 512)
	for i := 0; b.Loop(); i++ {
		dst = o.Append(dst[:0], i%190_000*512, 512)
	}
}

// Bytes are those of the numbers, to the last one, and no compressor makes them fewer.
func TestFill(t *testing.T) {
	got := make([]byte, 11)
	new(permute.Source).Fill(got)
	if d := cmp.Diff([]byte{0xaf, 0xcd, 0x1d, 0x7b, 0x39, 0xa8, 0x20, 0xe2, 0xf4, 0x65, 0xb9}, got); d != "" {
		t.Error(d)
	}
	long, out := make([]byte, 64<<10), bytes.Buffer{}
	permute.NewSource(1).Fill(long)
	w, err := flate.NewWriter(&out, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(append(long, long...)) // as the block of a transfer is repeated
	w.Close()
	if out.Len() < 2*len(long) {
		t.Errorf("%d bytes are compressed to %d", 2*len(long), out.Len())
	}
}
