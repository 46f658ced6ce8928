package dataset

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"tensorturn/domain/run"
)

const wildTable = "id,job,age,zip,kind\n1,admin,30,1,a\n2,\"red, dark\",,2,b\n3,?,50,1,a\n4,admin,40,2,b\n5,admin,20,1,a\n6,?,,2,b\n"

var wildData = run.Data{Format: run.FormatCSV, Missing: run.MissingMean, Categories: []string{"zip", "job"}, Ignore: []string{"id"}}

// A row of the file goes through the form to what packing made of it.
func TestFormMakesOfARowWhatPackingDid(t *testing.T) {
	table, err := ParseCSV(strings.NewReader(wildTable), CSVOptions{FillMean: true, Categories: wildData.Categories, Ignore: wildData.Ignore})
	if err != nil {
		t.Fatal(err)
	}
	f, raw := pack(t, table, 0, 7)
	set, err := Open(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	n := f.Features()
	packed, y := make([]float32, f.Samples*n), make([]int, f.Samples)
	if err := set.Rows(numbers(f.Samples), packed, y); err != nil {
		t.Fatal(err)
	}
	form := FormOf(f, wildData)
	if form == nil || len(form.Columns) != 3 || !form.Spread() || form.Features() != n {
		t.Fatalf("%+v", form)
	}
	if c := form.Columns[0]; c.Name != "job" || !slices.Equal(c.Words, []string{"(missing)", "admin", "red, dark"}) {
		t.Errorf("%+v", c)
	}
	for _, line := range [][]string{{"admin", "30", "1"}, {"red, dark", "", "2"}, {"?", "50", "1.0"}, {"", "NaN", " 2 "}} {
		row, x := make([]float32, n), make([]float32, n)
		for i, text := range line {
			if err := form.Set(row, i, text); err != nil {
				t.Fatal(err)
			}
		}
		f.Standardise(row, x)
		found := false
		for at := 0; at < len(packed); at += n {
			same := true
			for j, v := range packed[at : at+n] {
				same = same && math.Abs(float64(v-x[j])) < 1e-5
			}
			found = found || same
		}
		if !found {
			t.Errorf("%q became %v, which is no row of the data set", line, x)
		}
	}
}

// What cannot be a row of the file is refused by column, with what would be taken.
func TestFormRefuses(t *testing.T) {
	f := Facts{Columns: []string{"job = a", "job = b", "age"}, Mean: []float64{.5, .5, 40}, Std: []float64{1, 1, 1}}
	form := FormOf(f, run.Data{Categories: []string{"job"}})
	for _, c := range []struct {
		column    int
		text, why string
	}{
		{0, "c", `column "job": the word "c" was not in the training data; it knows "a", "b"`},
		{0, "", `column "job": the value is missing, and none was in the training data`},
		{1, "", `column "age": the value is missing, and the run was trained without data.missing`},
		{1, "nan", "is not finite"},
		{1, "old", `column "age": "old" is not a number`},
		{1, "inf", "is not finite"},
		{1, "1e39", "too large"},
		{1, "0x10", "is not a number"},
	} {
		if err := form.Set(make([]float32, 3), c.column, c.text); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%q: %v", c.text, err)
		}
	}
	if FormOf(f, run.Data{Categories: []string{"job", "town"}}) != nil {
		t.Error("a form of a column that the facts do not have")
	}
	if FormOf(f, run.Data{Format: run.FormatText}) != nil {
		t.Error("a form of a text")
	}
}

// NaN among features is a gap of a column of numbers, where the run fills gaps.
func TestFormFills(t *testing.T) {
	f := Facts{Columns: []string{"job = a", "age"}, Mean: []float64{.5, 40}, Std: []float64{1, 1}}
	nan := float32(math.NaN())
	for missing, want := range map[string]bool{run.MissingMean: true, "": false} {
		x := []float32{nan, nan, 1, 2}
		FormOf(f, run.Data{Categories: []string{"job"}, Missing: missing}).Fill(x)
		if filled := x[1] == 40; filled != want || x[0] == x[0] || x[3] != 2 {
			t.Errorf("%q: %v", missing, x)
		}
	}
}
