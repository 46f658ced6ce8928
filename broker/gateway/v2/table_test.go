package v2_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	v2 "tensorturn/broker/gateway/v2"
	"tensorturn/domain/dataset"
	"tensorturn/domain/run"
)

// cellsOf writes BYTES as the binary tensor extension has them.
func cellsOf(texts ...string) []byte {
	var out []byte
	for _, s := range texts {
		out = append(binary.LittleEndian.AppendUint32(out, uint32(len(s))), s...)
	}
	return out
}

func le64(v ...float64) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		panic(err)
	}
	return b
}

// Rows with words and gaps, as they stand in the table, become the features that packing made of such rows, whichever way
// they come; features themselves are taken as before.
func TestRowsAsInTheTable(t *testing.T) {
	w := newWorld(t)
	w.backend.facts = wild
	want := []float32{0, 1, 0, 30, 1, 0, 1, 0, 0, 41.5, 0, 1}
	for what, c := range map[string]struct {
		shape, datatype, data string
		bytes                 []byte
		want                  []float32
	}{
		"texts":                {"2,3", "BYTES", `["admin","30","1","","","2"]`, nil, want},
		"rows of lists":        {"2,3", "BYTES", `[["admin",30,1],[null,"NaN",2.0]]`, nil, want},
		"marks of a gap":       {"2,3", "BYTES", `["admin","30","1","NA","?","2"]`, nil, want},
		"spaces":               {"2,3", "BYTES", `[" admin","30 "," 1 ",""," ","2"]`, nil, want},
		"one row":              {"3", "BYTES", `["admin",30,1]`, nil, want[:6]},
		"bytes":                {"2,3", "BYTES", "", cellsOf("admin", "30", "1", "", "nan", "2"), want},
		"features":             {"2,6", "FP32", `[0,1,0,30,1,0,1,0,0,41.5,0,1]`, nil, want},
		"features with a null": {"1,6", "FP32", `[0,1,0,null,1,0]`, nil, []float32{0, 1, 0, 41.5, 1, 0}},
		"features with a NaN":  {"1,6", "FP64", "", le64(0, 1, 0, math.NaN(), 1, 0), []float32{0, 1, 0, 41.5, 1, 0}},
		"numbers and gaps":     {"1,3", "FP64", "", le64(math.NaN(), math.NaN(), 2), want[6:]},
		"numbers as text":      {"1,3", "FP64", "[null,null,2]", nil, want[6:]},
	} {
		body, headers := "", []string(nil)
		if c.bytes == nil {
			body = fmt.Sprintf(`{"inputs":[{"name":"input","shape":[%s],"datatype":"%s","data":%s}]}`, c.shape, c.datatype, c.data)
		} else {
			body, headers = binaryRequest(fmt.Sprintf(`{"inputs":[{"name":"input","shape":[%s],"datatype":"%s","parameters":{"binary_data_size":%d}}]}`, c.shape, c.datatype, len(c.bytes)), c.bytes)
		}
		if a := w.infer(body, headers...); a.code != 200 || !slices.Equal(w.backend.last, c.want) {
			t.Errorf("%s: %d %s, the model was asked %v", what, a.code, a.body, w.backend.last)
		}
	}
}

// What is no row of the table is refused with row, column and what is known.
func TestRowsThatAreNone(t *testing.T) {
	w := newWorld(t)
	w.backend.facts = wild
	request := func(shape, datatype, data string) string {
		return fmt.Sprintf(`{"inputs":[{"name":"input","shape":[%s],"datatype":"%s","data":%s}]}`, shape, datatype, data)
	}
	for _, c := range []struct{ body, text string }{
		{request("2,3", "BYTES", `["admin",30,1,"boss",30,1]`), `row 1, column "job": the word "boss" was not in the training data; it knows "(missing)", "admin", "tech"`},
		{request("1,3", "BYTES", `["admin",30,null]`), `column "zip": the value is missing, and none was in the training data; it knows "1", "2"`},
		{request("1,3", "BYTES", `["admin","old",1]`), `column "age": "old" is not a number`},
		{request("1,4", "BYTES", `["admin",30,1,2]`), "the model takes [-1 3]: job, age, zip"},
		{request("1,4", "FP64", `[1,30,1,2]`), "the model takes [-1 6] of numbers with a column for each word, or [-1 3] as in the table"},
		{request("1,3", "FP64", `["admin",30,1]`), "rows with words have the datatype BYTES"},
		{request("1,3", "BYTES", `["admin",true,1]`), "value 1 is no text, number or null"},
		{request("1,3", "BYTES", `["`+strings.Repeat("x", 257)+`",30,1]`), "longer than 256 bytes"},
		{request("1,3", "BYTES", `["admin",30]`), "has 2 values"},
		{request("4096,3", "BYTES", `["admin",30,1]`), "fewer than the 12288 values"},
		{request("1,6", "FP32", `[0,1,0,30,1,"x"]`), "value 5 is no number"},
	} {
		w.infer(c.body).refused(t, 400, c.text)
	}
	for _, c := range []struct {
		bytes []byte
		text  string
	}{
		{cellsOf("admin", "30", "1", "2"), "5 bytes follow its last value"},
		{cellsOf("admin", "30"), "ends within value 2"},
		{[]byte("\x05\x00\x00\x00admin\x02\x00\x00\x00"), "ends within value 1"},
		{[]byte("\xff\xff\xff\xffadmin\x02\x00\x00\x0030"), "value 0 is 4294967295 bytes long"},
		{[]byte("\x01\x00\x00\x00a"), "fewer than the 3 values"},
	} {
		body, headers := binaryRequest(fmt.Sprintf(`{"inputs":[{"name":"input","shape":[1,3],"datatype":"BYTES","parameters":{"binary_data_size":%d}}]}`, len(c.bytes)), c.bytes)
		w.infer(body, headers...).refused(t, 400, c.text)
	}
	if w.backend.asked != 0 {
		t.Errorf("the model was asked %d times", w.backend.asked)
	}
	strict := newWorld(t)
	strict.backend.facts = wild
	strict.backend.facts.Form = wildForm("")
	strict.infer(request("1,3", "BYTES", `["admin",null,1]`)).refused(t, 400, "trained without data.missing")
	strict.infer(request("1,6", "FP32", `[0,1,0,null,1,0]`)).refused(t, 400, "value 3 is no number")
}

// A small body does not become much memory, however many words a column has: at the limit it is taken, beyond it is not.
func TestWideRowsOfASmallBody(t *testing.T) {
	words := make([]string, 1<<10)
	f := dataset.Facts{Mean: make([]float64, len(words)), Std: make([]float64, len(words))}
	for i := range words {
		f.Columns = append(f.Columns, fmt.Sprintf("a = w%d", i))
	}
	w := newWorld(t)
	w.backend.facts.Columns, w.backend.facts.Form = f.Columns, dataset.FormOf(f, run.Data{Categories: []string{"a"}})
	for rows, code := range map[int]int{256: 200, 257: 413} {
		data := strings.TrimSuffix(strings.Repeat(`"w7",`, rows), ",")
		if a := w.infer(fmt.Sprintf(`{"inputs":[{"name":"input","shape":[%d,1],"datatype":"BYTES","data":[%s]}]}`, rows, data)); a.code != code {
			t.Errorf("%d rows: %d %.200s", rows, a.code, a.body)
		}
	}
}

// The metadata names the table's columns with their words, within a bound.
func TestMetadataNamesTheColumns(t *testing.T) {
	w := newWorld(t)
	w.backend.facts = wild
	const want = `"inputs":[{"name":"input","datatype":"FP32","shape":[-1,6],"parameters":{"rows":"[-1,3] of BYTES, or of numbers where all are","missing":"filled",` +
		`"columns":[{"name":"job","kind":"category","categories":["(missing)","admin","tech"]},{"name":"age","kind":"number"},{"name":"zip","kind":"category","categories":["1","2"]}]}}]`
	if a := w.send("GET", "/v2/models/digits", digitsKey, ""); !strings.Contains(a.body, want) {
		t.Errorf("%s", a.body)
	}
	var f dataset.Facts
	for i := range 2000 {
		f.Columns = append(f.Columns, fmt.Sprintf("%0100d", i))
	}
	f.Mean, f.Std = make([]float64, len(f.Columns)), make([]float64, len(f.Columns))
	w = newWorld(t)
	w.backend.facts.Columns, w.backend.facts.Form = f.Columns, dataset.FormOf(f, run.Data{})
	var told struct {
		Inputs []struct {
			Parameters struct {
				Columns []any
				Left    int `json:"columns_left_out"`
			}
		}
	}
	if err := json.Unmarshal([]byte(w.send("GET", "/v2/models/digits", digitsKey, "").body), &told); err != nil {
		t.Fatal(err)
	}
	if p := told.Inputs[0].Parameters; len(p.Columns) != v2.MaxTold/100 || p.Left != 2000-len(p.Columns) {
		t.Errorf("%d columns are told, %d left out", len(p.Columns), p.Left)
	}
}
