package dataset

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

func TestWords(t *testing.T) {
	const text = "id,colour,size,kind\n7,\"red, dark\",1,a\n8,blue,NA,b\n9,,3,a\n"
	got, err := ParseCSV(strings.NewReader(text), CSVOptions{Categories: []string{"colour"}, Ignore: []string{"id"}, FillMean: true})
	if err != nil {
		t.Fatal(err)
	}
	want := &Table{Columns: []string{"colour = (missing)", "colour = blue", "colour = red, dark", "size"}, Label: "kind", Classes: []string{"a", "b"},
		Values: []float64{0, 0, 1, 1, 0, 1, 0, 0, 1, 0, 0, 3}, Labels: []int{0, 1, 0}, Missing: []int{7}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWordsAreRefused(t *testing.T) {
	var many strings.Builder
	many.WriteString("a,b\n")
	for i := range MaxCategories + 1 {
		many.WriteString("w" + strings.Repeat("x", i%50) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)) + ",y\n")
	}
	for name, c := range map[string]struct {
		text string
		o    CSVOptions
		why  string
	}{
		"unknown":       {"colour,kind\nred,a\nblue,b\n", CSVOptions{Categories: []string{"color"}}, `no column is named so`},
		"the label":     {"colour,kind\nred,a\nblue,b\n", CSVOptions{Categories: []string{"kind"}}, "is the label or named twice"},
		"twice":         {"colour,kind\nred,a\nblue,b\n", CSVOptions{Categories: []string{"colour"}, Ignore: []string{"colour"}}, "named twice"},
		"nothing left":  {"colour,kind\nred,a\nblue,b\n", CSVOptions{Ignore: []string{"colour"}}, "no column is left"},
		"too many":      {many.String(), CSVOptions{Categories: []string{"a"}}, "line 1002, column 1 (a): more than 1000 different words"},
		"long word":     {"a,b\n" + strings.Repeat("w", 200) + ",x\nv,y\n", CSVOptions{Categories: []string{"a"}}, "line 2, column 1 (a): the word is longer"},
		"equal names":   {"a,a = x,b\nx,1,p\ny,2,q\n", CSVOptions{Categories: []string{"a"}}, `two columns would be named "a = x"`},
		"like a word":   {"a,a = z,b\nx,1,p\ny,2,q\n", CSVOptions{Categories: []string{"a"}}, `the column "a = z" is named like a word of the column "a"`},
		"missing":       {"a,b\n1,x\n,y\n", CSVOptions{}, "line 3, column 1 (a): the value is missing"},
		"infinite":      {"a,b\n1,x\ninf,y\n", CSVOptions{FillMean: true}, `"inf" is not finite`},
		"text to fill":  {"a,b\n1,x\ntwo,y\n", CSVOptions{FillMean: true}, `"two" is not a number`},
		"label missing": {"a,b\n1,x\n2,\n", CSVOptions{FillMean: true}, "line 3, column 2 (b): the label is missing"},
	} {
		if _, err := ParseCSV(strings.NewReader(c.text), c.o); domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// filled packs a table of two columns and a label with its gaps filled, and gives the training rows as they are read.
func filled(t *testing.T, text string) (Facts, []float32) {
	t.Helper()
	table, err := ParseCSV(strings.NewReader(text), CSVOptions{FillMean: true})
	if err != nil {
		t.Fatal(err)
	}
	f, raw := pack(t, table, 0.25, 1)
	set, err := Open(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	x, y := make([]float32, f.Samples*2), make([]int, f.Samples)
	if err := set.Rows(numbers(f.Samples), x, y); err != nil {
		t.Fatal(err)
	}
	return f, x
}

// The mean is the training part's alone, and the packed value of a gap is 0, the mean.
func TestGapsAreFilledByTheTrainingMean(t *testing.T) {
	var text strings.Builder
	text.WriteString("a,b,y\n")
	for i := range 40 {
		a := "1.5"
		switch {
		case i%4 == 0:
			a = "NaN"
		case i%4 == 1:
			a = "4.5"
		}
		text.WriteString(a + ",?," + string("pq"[i%2]) + "\n")
	}
	f, x := filled(t, text.String())
	var sum float64
	zeros := 0
	for i := range f.Samples {
		sum += float64(x[2*i])
		if math.Abs(float64(x[2*i])) < 1e-6 {
			zeros++
		}
		if x[2*i+1] != 0 {
			t.Errorf("a column without a value is packed as %v", x[2*i+1])
		}
	}
	if math.Abs(sum) > 1e-4 || zeros < 5 {
		t.Errorf("%d gaps at the mean, the column sums to %v", zeros, sum)
	}
}

// The sum of equal values by their count may differ from them: a gap filled so would make a feature of the last bit.
func TestGapsOfAConstantColumnStayConstant(t *testing.T) {
	var text strings.Builder
	text.WriteString("a,b,y\n")
	for i := range 40 {
		a := "0.1"
		if i%4 == 0 {
			a = "NaN"
		}
		fmt.Fprintf(&text, "%s,%d,%c\n", a, i, "pq"[i%2])
	}
	f, x := filled(t, text.String())
	for i := range f.Samples {
		if math.Abs(float64(x[2*i])) > 1e-6 {
			t.Errorf("row %d of a constant column is packed as %v", i, x[2*i])
		}
	}
	if f.Std[0] != 1 {
		t.Errorf("a constant column with gaps has deviation %v", f.Std[0])
	}
}

func TestRegressionTable(t *testing.T) {
	var text strings.Builder
	text.WriteString("a,price\n")
	for i := range 50 {
		text.WriteString(string(rune('0'+i%10)) + "," + string(rune('0'+i%7)) + ".5\n")
	}
	table, err := ParseCSV(strings.NewReader(text.String()), CSVOptions{Regression: true})
	if err != nil || table.Rows() != 50 || table.Classes != nil {
		t.Fatal(table, err)
	}
	f, raw := pack(t, table, 0.2, 1)
	if f.Samples != 40 || f.Heldout != 10 || f.Task != run.TaskRegression {
		t.Errorf("%d and %d samples, task %q", f.Samples, f.Heldout, f.Task)
	}
	set, err := Open(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	x, y := make([]float32, 40), make([]float32, 40)
	if err := set.ValueRows(numbers(40), x, y); err != nil {
		t.Fatal(err)
	}
	h := make([]float32, 10)
	if err := set.HeldoutValues(0, 10, x[:10], h); err != nil {
		t.Fatal(err)
	}
	var all []float64
	for _, v := range slices.Concat(y, h) {
		all = append(all, math.Round((float64(v)*f.TargetStd+f.TargetMean)*1000)/1000)
	}
	want := slices.Clone(table.Targets)
	slices.Sort(all)
	slices.Sort(want)
	if !slices.Equal(all, want) {
		t.Errorf("targets come back as %v", all)
	}
	for name, text := range map[string]string{"word": "a,b\n1,2\n2,x\n", "gap": "a,b\n1,2\n2,\n", "all equal": "a,b\n1,2\n2,2\n", "infinite": "a,b\n1,2\n2,inf\n"} {
		if _, err := ParseCSV(strings.NewReader(text), CSVOptions{Regression: true, FillMean: true}); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, edit := range map[string]func(map[string]any){
		"other task":    func(h map[string]any) { h["task"] = "guess" },
		"no deviation":  func(h map[string]any) { delete(h, "target_std") },
		"with classes":  func(h map[string]any) { h["classes"] = []string{"a", "b"} },
		"no task":       func(h map[string]any) { delete(h, "task") },
		"wrong shape":   func(h map[string]any) { h["shape"] = []int{1, 2, 3} },
		"shapeless":     func(h map[string]any) { h["shape"] = []int{1} },
		"bytes":         func(h map[string]any) { h["bytes"] = true },
		"text too":      func(h map[string]any) { h["predicts"], h["segment"] = 1, 2 },
		"negative side": func(h map[string]any) { h["shape"] = []int{-1, -1, 1} },
	} {
		bad := rewritten(t, raw, edit)
		if _, err := Open(bytes.NewReader(bad), -1); domain.KindOf(err) != domain.KindIntegrity {
			t.Errorf("%s: %v", name, err)
		}
	}
}
