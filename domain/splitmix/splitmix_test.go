package splitmix

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The first numbers of seed 1234567 are the reference implementation's, as published with its description.
func TestReferenceVector(t *testing.T) {
	want := []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821}
	s := New(1234567)
	for i, w := range want {
		if g := s.Uint64(); g != w {
			t.Fatalf("number %d is %d, want %d", i, g, w)
		}
	}
}

// Golden orders: a changed generator would change every data set and every run.
func TestGoldenStreams(t *testing.T) {
	list := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	Shuffle(New(1, 2), list)
	if want := []int{9, 4, 3, 1, 7, 0, 8, 2, 5, 6}; !slices.Equal(list, want) {
		t.Errorf("shuffle of seed 1, tag 2 is %v, want %v", list, want)
	}
	if a, b := New(1, 2).Uint64(), New(2, 1).Uint64(); a == b {
		t.Error("seed and tag are interchangeable")
	}
	if a, b := New(1, 0).Uint64(), New(1).Uint64(); a == b {
		t.Error("tag 0 is the untagged stream")
	}
}

func TestBelowIsUnbiased(t *testing.T) {
	const draws, n = 70_000, 7
	var count [n]int
	s := New(3)
	for range draws {
		count[s.Below(n)]++
	}
	for v, c := range count {
		if c < draws/n*95/100 || c > draws/n*105/100 {
			t.Errorf("%d was drawn %d times of %d", v, c, draws)
		}
	}
}

func TestRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(rapid.Uint64().Draw(t, "seed"), rapid.Uint64().Draw(t, "tag"))
		n := rapid.Uint64Range(1, 1<<63+5).Draw(t, "n")
		if v := s.Below(n); v >= n {
			t.Fatalf("Below(%d) gave %d", n, v)
		}
		if f := s.Float64(); f < 0 || f >= 1 {
			t.Fatalf("Float64 gave %v", f)
		}
	})
}
