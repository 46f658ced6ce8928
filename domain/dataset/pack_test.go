package dataset

import (
	"bytes"
	"io"
	"math"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

const digitsFile = "../../cmd/tensorturn/demo/digits.csv.gz"

func digits(t testing.TB) *Table {
	t.Helper()
	f, err := os.Open(digitsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := ParseCSV(f, CSVOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func pack(t testing.TB, table *Table, holdout float64, seed uint64) (Facts, []byte) {
	t.Helper()
	var out bytes.Buffer
	f, err := Pack(table, holdout, seed, &out)
	if err != nil {
		t.Fatal(err)
	}
	return f, out.Bytes()
}

func TestDigitsArePackedStratifiedAndStandardised(t *testing.T) {
	table := digits(t)
	f, raw := pack(t, table, 0.2, 1)
	if f.Samples != 1438 || f.Heldout != 359 || f.Features() != 64 || len(f.Classes) != 10 || f.Block != 1438 {
		t.Fatalf("facts %d %d %d %d %d", f.Samples, f.Heldout, f.Features(), len(f.Classes), f.Block)
	}
	_, again := pack(t, table, 0.2, 1)
	if !bytes.Equal(raw, again) {
		t.Error("equal input and seed gave other bytes")
	}
	if _, other := pack(t, table, 0.2, 2); bytes.Equal(raw[len(raw)-1000:], other[len(other)-1000:]) {
		t.Error("another seed gave the same split")
	}
	set, err := Open(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	x, y := make([]float32, f.Samples*64), make([]int, f.Samples)
	if err := set.Rows(numbers(f.Samples), x, y); err != nil {
		t.Fatal(err)
	}
	count := make([]int, 10)
	for _, l := range table.Labels {
		count[l]++
	}
	for _, l := range y {
		count[l]--
	}
	for c, held := range count { // 174 to 183 of each digit
		if held < 34 || held > 37 {
			t.Errorf("class %d has %d held-out rows", c, held)
		}
	}
	checkStandardised(t, f, x)
}

func checkStandardised(t *testing.T, f Facts, x []float32) {
	t.Helper()
	n := f.Features()
	for j := range n {
		var sum, squares float64
		for i := j; i < len(x); i += n {
			sum += float64(x[i])
			squares += float64(x[i]) * float64(x[i])
		}
		mean, variance := sum/float64(f.Samples), squares/float64(f.Samples)
		constant := f.Std[j] == 1 && variance == 0
		if math.Abs(mean) > 1e-5 || !constant && math.Abs(variance-1) > 1e-4 {
			t.Errorf("column %d has mean %g and variance %g", j, mean, variance)
		}
	}
}

func numbers(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// The held-out part must not leak into the statistics: a wild held-out value may not move a mean.
func TestStatisticsSeeTheTrainingPartOnly(t *testing.T) {
	table := digits(t)
	before, _ := pack(t, table, 0.2, 1)
	_, held := split(table, 0.2, 1)
	for _, i := range held {
		table.Values[i*64+10] = 1e6
	}
	after, _ := pack(t, table, 0.2, 1)
	if !slices.Equal(before.Mean, after.Mean) || !slices.Equal(before.Std, after.Std) {
		t.Error("held-out values changed the statistics")
	}
}

func TestQuotas(t *testing.T) {
	for _, c := range []struct {
		name    string
		count   []int
		holdout float64
		want    []int
	}{
		{"exact", []int{10, 20}, 0.2, []int{2, 4}},
		{"largest remainder", []int{7, 8}, 0.2, []int{1, 2}},
		{"single samples stay in training", []int{1, 1, 10}, 0.5, []int{0, 0, 5}},
		{"two of two keeps one", []int{2, 2}, 0.9, []int{1, 1}},
		{"at least one where possible", []int{2, 2}, 0.01, []int{1, 0}},
		{"nothing can be held out", []int{1, 1}, 0.5, []int{0, 0}},
		{"none wished", []int{5, 5}, 0, []int{0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := quotas(c.count, c.holdout); !slices.Equal(got, c.want) {
				t.Errorf("quotas are %v, want %v", got, c.want)
			}
		})
	}
}

func TestSplitKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.SliceOfN(rapid.IntRange(1, 40), 2, 8).Draw(t, "count")
		holdout := rapid.Float64Range(0, 0.9).Draw(t, "holdout")
		table := &Table{Classes: make([]string, len(count))}
		for c, n := range count {
			for range n {
				table.Labels = append(table.Labels, c)
			}
		}
		train, held := split(table, holdout, rapid.Uint64().Draw(t, "seed"))
		all := slices.Concat(train, held)
		slices.Sort(all)
		if !slices.Equal(all, numbers(len(table.Labels))) {
			t.Fatal("a row is lost or doubled")
		}
		in := make([]int, len(count))
		for _, i := range train {
			in[table.Labels[i]]++
		}
		for c, n := range in {
			if n == 0 {
				t.Fatalf("class %d has no training sample", c)
			}
			out, want := float64(count[c]-n), float64(holdout*float64(count[c]))
			if out > want+1 {
				t.Fatalf("class %d of %d has %v held out at %v", c, count[c], out, holdout)
			}
		}
	})
}

func TestPackRefuses(t *testing.T) {
	small := func() *Table {
		return &Table{Columns: []string{"a"}, Label: "b", Classes: []string{"x", "y"}, Values: []float64{1, 2, 3, 4}, Labels: []int{0, 1, 0, 1}}
	}
	for _, h := range []float64{-0.1, 1, math.NaN()} {
		if _, err := Pack(small(), h, 1, io.Discard); err == nil {
			t.Errorf("holdout %v was accepted", h)
		}
	}
	// Training values of a width of 1e-30 and a held-out one of 1e30 have no place in float32.
	wild := &Table{Columns: []string{"a"}, Label: "b", Classes: []string{"x", "y"},
		Values: []float64{1e-30, 2e-30, 3e-30, 4e-30, 2e-30, 1e-30}, Labels: []int{0, 1, 0, 1, 0, 1}}
	_, held := split(wild, 0.3, 1)
	wild.Values[held[0]] = 1e30
	if _, err := Pack(wild, 0.3, 1, io.Discard); err == nil {
		t.Error("a value that overflows when standardised was accepted")
	}
}

func TestConstantColumns(t *testing.T) {
	table := &Table{Columns: []string{"a", "b"}, Label: "c", Classes: []string{"x", "y"}, Labels: []int{0, 1, 0, 1, 0, 1}}
	for i := range 6 {
		table.Values = append(table.Values, 0.1, float64(i))
	}
	f, _ := pack(t, table, 0, 1)
	if f.Std[0] != 1 {
		t.Errorf("a constant column has deviation %v", f.Std[0])
	}
}
