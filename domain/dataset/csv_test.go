package dataset

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain"
)

func TestParseCSV(t *testing.T) {
	for _, c := range []struct {
		name  string
		text  string
		label string
		want  *Table
	}{
		{"no header, number labels", "1,2,7\n3,4,10\n5,6,7\n", "",
			&Table{Columns: []string{"column 1", "column 2"}, Label: "column 3", Classes: []string{"7", "10"},
				Values: []float64{1, 2, 3, 4, 5, 6}, Labels: []int{0, 1, 0}}},
		{"no header, text labels", "5.1,3.5,setosa\n7,3.2,versicolor\n", "last",
			&Table{Columns: []string{"column 1", "column 2"}, Label: "column 3", Classes: []string{"setosa", "versicolor"},
				Values: []float64{5.1, 3.5, 7, 3.2}, Labels: []int{0, 1}}},
		{"header, named label in the middle", "a,kind,b\n1,y,2\n3,x,4\n", "kind",
			&Table{Columns: []string{"a", "b"}, Label: "kind", Classes: []string{"x", "y"},
				Values: []float64{1, 2, 3, 4}, Labels: []int{1, 0}}},
		{"header of numbers above number labels", "0,1,digit\n5,6,1\n7,8,2\n", "",
			&Table{Columns: []string{"0", "1"}, Label: "digit", Classes: []string{"1", "2"},
				Values: []float64{5, 6, 7, 8}, Labels: []int{0, 1}}},
		{"no header, label first", "x,2,7\ny,4,10\n", "first",
			&Table{Columns: []string{"column 2", "column 3"}, Label: "column 1", Classes: []string{"x", "y"},
				Values: []float64{2, 7, 4, 10}, Labels: []int{0, 1}}},
		{"header of numbers, label named", "0,1,2\n5,6,x\n7,8,y\n", "2",
			&Table{Columns: []string{"0", "1"}, Label: "2", Classes: []string{"x", "y"},
				Values: []float64{5, 6, 7, 8}, Labels: []int{0, 1}}},
		{"equal numbers are one class", "1,1.0\n2,1\n3,-0\n4,0\n5,1e0\n", "",
			&Table{Columns: []string{"column 1"}, Label: "column 2", Classes: []string{"0", "1"},
				Values: []float64{1, 2, 3, 4, 5}, Labels: []int{1, 1, 0, 0, 1}}},
		{"byte order mark, carriage returns, blank lines, no last newline", "\xef\xbb\xbfa,b\r\n1,x\r\n\r\n2,y", "",
			&Table{Columns: []string{"a"}, Label: "b", Classes: []string{"x", "y"}, Values: []float64{1, 2}, Labels: []int{0, 1}}},
		{"quotes and spaces", "\"a, b\", c \n 1 ,\"say \"\"x\"\"\"\n\"2\",y\n", "",
			&Table{Columns: []string{"a, b"}, Label: "c", Classes: []string{`say "x"`, "y"}, Values: []float64{1, 2}, Labels: []int{0, 1}}},
		{"unnamed index column of a data frame", ",a,b\n0,1,x\n1,2,y\n", "",
			&Table{Columns: []string{"column 1", "a"}, Label: "b", Classes: []string{"x", "y"}, Values: []float64{0, 1, 1, 2}, Labels: []int{0, 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for form, r := range map[string]io.Reader{"plain": strings.NewReader(c.text), "gzip": bytes.NewReader(zipped(t, c.text))} {
				got, err := ParseCSV(r, CSVOptions{Label: c.label})
				if err != nil {
					t.Fatalf("%s: %v", form, err)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("%s: %s", form, diff)
				}
			}
		})
	}
}

func zipped(t testing.TB, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestParseCSVRefuses(t *testing.T) {
	whole := string(zipped(t, strings.Repeat("1,2,x\n3,4,y\n", 5000)))
	flipped := []byte(whole)
	flipped[len(flipped)-6] ^= 0x55 // the checksum
	for _, c := range []struct {
		name, text, label string
		why, next         string // parts of the sentences
	}{
		{"empty", "", "", "the file is empty", "one sample a line"},
		{"blank lines only", "\n \n\r\n", "", "the file is empty", ""},
		{"header only", "a,b\n", "", "header row and no samples", ""},
		{"one sample", "1,x\n", "", "one sample only", ""},
		{"one sample under a header", "a,b\n1,x\n", "", "one sample only", ""},
		{"one class", "1,x\n2,x\n", "", `all 2 samples have the label "x"`, "two classes"},
		{"ragged", "a,b,c\n1,2,x\n1,x\n", "", "line 3 has 2 columns, line 1 has 3", "same number of columns"},
		{"ragged after blank lines", "a,b\n\n\n1,x,\n", "", "line 4 has 3 columns, line 1 has 2", ""},
		{"text where a number must be", "a,bee,c\n1,2,x\n1,two,y\n", "", `line 3, column 2 (bee): "two" is not a number`, "data.categories"},
		{"text beyond the label column", "a,kind,b\n1,x,oops\n", "kind", `line 2, column 3 (b): "oops" is not a number`, ""},
		{"text in the second row without header", "1,2,x\noops,2,y\n", "", `line 2, column 1: "oops"`, ""},
		{"missing value", "a,b,c\n1,2,x\n1,,y\n", "", "line 3, column 2 (b): the value is missing", ""},
		{"missing value in the first row", "1,NA,x\n1,2,y\n", "", "line 1, column 2: the value is missing (\"NA\")", ""},
		{"NaN", "1,2,x\nNaN,2,y\n", "", `line 2, column 1: "NaN" is not finite`, ""},
		{"infinite", "1,2,x\n1,-inf,y\n", "", `"-inf" is not finite`, ""},
		{"too large for float32", "1,x\n1e39,y\n", "", "line 2, column 1: \"1e39\" is too large", ""},
		{"too large for float64", "1,x\n1e999,y\n", "", "is too large", ""},
		{"hexadecimal", "1,x\n0x10,y\n", "", `"0x10" is not a number`, ""},
		{"label missing", "1,x\n2,\n", "", "line 2, column 2: the label is missing", ""},
		{"label not finite", "1,1\n2,nan\n", "", "the label \"nan\" is not finite", ""},
		{"label column misspelt", "width,species\n1,x\n2,y\n", "speces", `no column is named "speces"`, `nearest name is "species"`},
		{"label named without a header", "1,x\n2,y\n", "species", "the file has no header row", `label "last"`},
		{"one column", "1\n2\n", "", "one column only", "feature column"},
		{"semicolons", "1;2;x\n", "", "one column only", `";"`},
		{"tabs", "1\t2\tx\n", "", "one column only", `"\t"`},
		{"two columns of one name", "a,b,a\n1,2,x\n", "", `columns 1 and 3 are both named "a"`, ""},
		{"quote not closed", "1,x\n2,\"y\n3,z\n", "", "line 2, column 2: the quote is not closed", ""},
		{"text after a quote", "1,x\n\"2\"3,y\n", "", "line 2, column 1: text after the closing quote", ""},
		{"not UTF-8", "1,x\n2,\xff\xfe\n", "", "line 2 is not UTF-8 text", ""},
		{"binary", "a\x00b,c\n", "", "line 1 is not UTF-8 text", ""},
		{"measurements as labels", "1,0.5\n2,0.25\n3,0.125\n", "", "3 different fractions in 3 samples", "data.task"},
		{"gzip truncated", whole[:len(whole)/2], "", "the gzip stream ends early", "cut off"},
		{"gzip without its trailer", whole[:len(whole)-4], "", "the gzip stream ends early", ""},
		{"gzip damaged", string(flipped), "", "the gzip stream is damaged", "again"},
		{"gzip header only", whole[:5], "", "the gzip stream ends early", ""},
		{"name too long", strings.Repeat("n", MaxNameBytes+1) + ",b\n1,x\n", "", "longer than 256 bytes", ""},
		{"label too long", "1,x\n2," + strings.Repeat("n", MaxNameBytes+1), "", "longer than 256 bytes", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseCSV(strings.NewReader(c.text), CSVOptions{Label: c.label})
			if domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), c.why) || !strings.Contains(domain.NextOf(err), c.next) {
				t.Errorf("error %v, next %q", err, domain.NextOf(err))
			}
			if domain.NextOf(err) == "" {
				t.Error("the error does not say what to do next")
			}
		})
	}
}

func TestParseCSVLimits(t *testing.T) {
	var classes strings.Builder
	for i := range MaxClasses + 1 {
		fmt.Fprintf(&classes, "1,k%d\n2,k%d\n", i, i)
	}
	atLimit, _, _ := strings.Cut(classes.String(), fmt.Sprintf("1,k%d\n", MaxClasses))
	for _, c := range []struct {
		name string
		text string
		opt  CSVOptions
		why  string // empty: accepted
	}{
		{"rows at the limit", "1,x\n2,y\n3,x\n", CSVOptions{MaxRows: 3}, ""},
		{"rows beyond", "1,x\n2,y\n3,x\n", CSVOptions{MaxRows: 2}, "line 3: more than 2 samples"},
		{"columns at the limit", "1,2,x\n2,3,y\n", CSVOptions{MaxColumns: 3}, ""},
		{"columns beyond", "1,2,x\n2,3,y\n", CSVOptions{MaxColumns: 2}, "3 columns, at most 2"},
		{"columns far beyond", strings.Repeat("1,", MaxColumns) + "x\n", CSVOptions{}, "more than 65536 columns"},
		{"classes at the limit", atLimit, CSVOptions{}, ""},
		{"classes beyond", classes.String(), CSVOptions{}, "more than 10000 different labels"},
		{"line at the limit", "1,x\n2,y" + strings.Repeat(" ", MaxLineBytes-4) + "\n", CSVOptions{}, ""},
		{"line beyond", "1,x\n2,y" + strings.Repeat(" ", MaxLineBytes) + "\n", CSVOptions{}, "line 2 is longer than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseCSV(strings.NewReader(c.text), c.opt)
			if c.why == "" && err != nil || c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
				t.Errorf("error %v, want %q", err, c.why)
			}
		})
	}
}

type brokenReader struct{}

var errDisk = errors.New("disk on fire")

func (brokenReader) Read([]byte) (int, error) { return 0, errDisk }

func TestErrorsOfTheSourceArePassedOn(t *testing.T) {
	r := io.MultiReader(strings.NewReader("1,x\n2,y\n"), brokenReader{})
	if _, err := ParseCSV(r, CSVOptions{}); !errors.Is(err, errDisk) {
		t.Errorf("error %v", err)
	}
	pictures, labels := album(3)
	for _, n := range []int{2, 6, 30} {
		r := io.MultiReader(bytes.NewReader(pictures[:n]), brokenReader{})
		if _, err := ReadIDX(r, bytes.NewReader(labels)); !errors.Is(err, errDisk) {
			t.Errorf("an IDX file whose disk fails after %d bytes: %v", n, err)
		}
	}
}

// Whatever the bytes, parsing ends in a table that keeps its promises or in a refusal with all three parts.
func FuzzParseCSV(f *testing.F) {
	for _, s := range []string{"1,2,x\n3,4,y\n", "a,b\n1,x\n2,y\n", "\"a\",b\n1,\"x\"\"\"\n2,y", ",\n,", "1,1\n2,2\n", "\x1f\x8b", "nan,inf\n"} {
		f.Add([]byte(s), "last")
	}
	f.Add(zipped(f, "a,b\n1,x\n2,y\n"), "b")
	f.Fuzz(func(t *testing.T, raw []byte, label string) {
		table, err := ParseCSV(bytes.NewReader(raw), CSVOptions{Label: label, MaxRows: 1000, MaxColumns: 50})
		if err != nil {
			if domain.KindOf(err) != domain.KindInvalid || domain.NextOf(err) == "" || len(err.Error()) > 1000 {
				t.Fatalf("error %v", err)
			}
			return
		}
		if table.Rows() < 2 || len(table.Classes) < 2 || len(table.Values) != table.Rows()*len(table.Columns) {
			t.Fatalf("table of %d rows, %d classes, %d values", table.Rows(), len(table.Classes), len(table.Values))
		}
		var out bytes.Buffer
		if _, err := Pack(table, 0.2, 1, &out); err != nil {
			if domain.KindOf(err) != domain.KindInvalid {
				t.Fatalf("pack: %v", err)
			}
			return
		}
		if _, err := Open(bytes.NewReader(out.Bytes()), int64(out.Len())); err != nil {
			t.Fatalf("a packed table does not open: %v", err)
		}
	})
}
