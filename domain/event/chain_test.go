package event_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// chain encodes n linked records and gives them with the digest of the last.
func chain(t testing.TB, n int) (recs [][]byte, head domain.Digest) {
	t.Helper()
	for i := range n {
		e := envelope(i, &lit{Watts: i * 37}, 1)
		if i%3 == 1 {
			e.Data, e.Version = &turned{i}, 3
		}
		e.Prev = head
		b, err := event.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		recs, head = append(recs, b), event.Digest(b)
	}
	return recs, head
}

// verify feeds the records as sequences 1, 2, 3, ... and gives the first bad one, 0 for none.
func verify(t *testing.T, v *event.Verifier, recs [][]byte) uint64 {
	t.Helper()
	for i, b := range recs {
		if _, err := v.Next(uint64(i+1), b); err != nil {
			return firstBad(t, err)
		}
	}
	if err := v.Finish(); err != nil {
		return firstBad(t, err)
	}
	return 0
}

func firstBad(t *testing.T, err error) uint64 {
	t.Helper()
	seq, ok := event.FirstBad(err)
	if domain.KindOf(err) != domain.KindIntegrity || !ok || !strings.Contains(err.Error(), fmt.Sprintf("first bad sequence %d:", seq)) {
		t.Fatalf("not an integrity error that names a sequence: %v", err)
	}
	return seq
}

func TestIntactChainPasses(t *testing.T) {
	recs, head := chain(t, 50)
	v := event.NewVerifier(toy())
	v.Expect(50, head)
	if bad := verify(t, v, recs); bad != 0 {
		t.Fatalf("intact chain is bad at %d", bad)
	}
	if seq, d := v.Head(); seq != 50 || d != head {
		t.Errorf("head %d %s", seq, d.Short())
	}
	half := event.ResumeVerifier(toy(), 25, event.Digest(recs[24]))
	for i, b := range recs[25:] {
		if _, err := half.Next(uint64(26+i), b); err != nil {
			t.Fatal(err)
		}
	}
}

// mutations change one thing in a chain and say which sequence is the first that is not what was written.
func mutations() map[string]func(r *rand.Rand, recs [][]byte) ([][]byte, uint64) {
	at := func(r *rand.Rand, recs [][]byte) int { return r.IntN(len(recs)) }
	return map[string]func(r *rand.Rand, recs [][]byte) ([][]byte, uint64){
		"flip": func(r *rand.Rand, recs [][]byte) ([][]byte, uint64) {
			k := at(r, recs)
			recs[k] = slices.Clone(recs[k])
			recs[k][r.IntN(len(recs[k]))] ^= 1 << r.IntN(8)
			return recs, uint64(k + 1)
		},
		"cut bytes": func(r *rand.Rand, recs [][]byte) ([][]byte, uint64) {
			k := at(r, recs)
			i := r.IntN(len(recs[k]))
			j := i + 1 + r.IntN(len(recs[k])-i)
			recs[k] = slices.Delete(slices.Clone(recs[k]), i, j)
			return recs, uint64(k + 1)
		},
		"insert bytes": func(r *rand.Rand, recs [][]byte) ([][]byte, uint64) {
			k := at(r, recs)
			recs[k] = slices.Insert(slices.Clone(recs[k]), r.IntN(len(recs[k])+1), byte(r.Uint32()), byte(r.Uint32()))
			return recs, uint64(k + 1)
		},
		"insert record": func(r *rand.Rand, recs [][]byte) ([][]byte, uint64) {
			k, from := at(r, recs), at(r, recs)
			if from == k { // a copy in front of the original is found at the original
				return slices.Insert(recs, k, recs[from]), uint64(k + 2)
			}
			return slices.Insert(recs, k, recs[from]), uint64(k + 1)
		},
		"reorder": func(r *rand.Rand, recs [][]byte) ([][]byte, uint64) {
			i, j := at(r, recs), at(r, recs)
			if i == j {
				j = (i + 1) % len(recs)
			}
			recs[i], recs[j] = recs[j], recs[i]
			return recs, uint64(min(i, j) + 1)
		},
		"drop": func(r *rand.Rand, recs [][]byte) ([][]byte, uint64) {
			k := at(r, recs)
			return slices.Delete(recs, k, k+1), uint64(k + 1)
		},
	}
}

func TestThousandMutationsAreFound(t *testing.T) {
	good, head := chain(t, 20)
	kinds := mutations()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		name := []string{"flip", "cut bytes", "insert bytes", "insert record", "reorder", "drop"}[i%6]
		recs, want := kinds[name](r, slices.Clone(good))
		v := event.NewVerifier(toy())
		v.Expect(20, head) // a signed head: without one, records missing at the end cannot be noticed
		if got := verify(t, v, recs); got != want {
			t.Fatalf("mutation %d (%s): first bad sequence %d, want %d", i, name, got, want)
		}
	}
}

func TestGapIsNamed(t *testing.T) {
	recs, _ := chain(t, 5)
	v := event.NewVerifier(toy())
	for _, seq := range []uint64{1, 2} {
		if _, err := v.Next(seq, recs[seq-1]); err != nil {
			t.Fatal(err)
		}
	}
	_, err := v.Next(4, recs[3])
	if bad := firstBad(t, err); bad != 3 {
		t.Fatalf("first bad %d, want 3", bad)
	}
	if _, again := v.Next(3, recs[2]); again != err {
		t.Fatalf("a broken log goes on: %v", again)
	}
}

// TestOnlyTheChainFindsAForgery takes the rule away: each record read by itself is fine, checksum and all, so without
// the comparison of Prev a forged record would pass.
func TestOnlyTheChainFindsAForgery(t *testing.T) {
	recs, _ := chain(t, 9)
	e, err := event.Decode(toy(), 4, recs[3])
	if err != nil {
		t.Fatal(err)
	}
	e.Data = &lit{Watts: 1_000_000}
	recs[3] = mustEncode(t, e)
	for i, b := range recs {
		if _, err := event.Decode(toy(), uint64(i+1), b); err != nil {
			t.Fatalf("record %d by itself: %v", i+1, err)
		}
	}
	if bad := verify(t, event.NewVerifier(toy()), recs); bad != 5 {
		t.Fatalf("first bad sequence %d, want 5: the one that does not follow the forged one", bad)
	}
	v := event.NewVerifier(toy())
	good, _ := chain(t, 9)
	v.Expect(4, event.Digest(good[3]))
	if bad := verify(t, v, recs); bad != 4 {
		t.Fatalf("with a signed head first bad sequence %d, want 4", bad)
	}
}

func TestUnknownEventBreaksWithAHint(t *testing.T) {
	b := mustEncode(t, envelope(1, &heavy{}, 1))
	_, err := event.NewVerifier(toy()).Next(1, b)
	if firstBad(t, err) != 1 || !strings.Contains(err.Error(), "unknown") {
		t.Fatalf("got %v", err)
	}
}

func BenchmarkVerify(b *testing.B) {
	recs, _ := chain(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		v := event.NewVerifier(toy())
		for i, rec := range recs {
			if _, err := v.Next(uint64(i+1), rec); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "events/s")
}
