package v2_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	v2 "tensorturn/broker/gateway/v2"
)

type v2Config = v2.Config

// FuzzRequest: the reader never panics, never takes what encoding/json does not, and reads numbers as strconv does.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{"id":"42","inputs":[{"name":"input","shape":[1,3],"datatype":"FP32","data":[1,-2.5e3,3]}]}`,
		`{"inputs":[{"name":"input","shape":[2,3],"datatype":"INT64","data":[[1,2,3],[4,5,6]]}],"outputs":[{"name":"label","parameters":{"binary_data":true}}]}`,
		`{"inputs":[{"name":"input","shape":[3],"datatype":"BOOL","data":[true,false,true]}],"x":{"y":[null,"\u00e4\n"]}}`,
		`{"inputs":[{"name":"input","shape":[3],"datatype":"FP16","parameters":{"binary_data_size":6}}]}abcdef`,
	} {
		f.Add([]byte(s), len(s))
		f.Add([]byte(s), len(s)-6)
	}
	f.Fuzz(func(t *testing.T, body []byte, header int) {
		x, _, why := v2.Parsed(body, header, facts)
		if why != "" {
			if !utf8.ValidString(strings.ToValidUTF8(why, "")) || len(why) > 4096 {
				t.Errorf("a refusal of %d bytes", len(why))
			}
			return
		}
		if header < 0 || header > len(body) {
			header = len(body)
		}
		var q struct {
			Inputs []struct {
				Datatype string
				Data     any
			}
		}
		if err := json.Unmarshal(body[:header], &q); err != nil {
			t.Fatalf("taken although it is no JSON: %v", err)
		}
		if len(x)%3 != 0 || len(x) == 0 || len(x) > v2.MaxRows*3 {
			t.Fatalf("%d values", len(x))
		}
		// encoding/json takes names in any case, so that it may see another input in strange bodies: compare what it must agree on
		if len(q.Inputs) != 1 || !strings.HasPrefix(q.Inputs[0].Datatype, "FP32") || strings.Count(strings.ToLower(string(body)), `"data"`) != 1 {
			return
		}
		flat := flatten(q.Inputs[0].Data, nil)
		for i, v := range flat {
			if i < len(x) && math.Abs(float64(x[i])-v) > 1e-6*math.Abs(v)+1e-40 {
				t.Errorf("value %d is %v, encoding/json reads %v", i, x[i], v)
			}
		}
	})
}

func flatten(v any, to []float64) []float64 {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			to = flatten(e, to)
		}
	case float64:
		to = append(to, v)
	}
	return to
}

// FuzzTable: rows as they stand in a table with words and gaps, as text or as bytes. What is taken is whole rows of finite
// features, each word exactly one 1.
func FuzzTable(f *testing.F) {
	object := func(datatype, how string) string {
		return `{"inputs":[{"name":"input","shape":[2,3],"datatype":"` + datatype + `",` + how + `}]}`
	}
	cells := cellsOf("admin", "30", "1", "tech", "", "2")
	text := object("BYTES", `"data":["admin",30,"1",["tech",null,2]]`)
	f.Add([]byte(text), []byte{})
	f.Add([]byte(object("BYTES", `"data":[["admin",30,"1"],["tech",null,2]]`)), []byte{})
	f.Add([]byte(object("BYTES", fmt.Sprintf(`"parameters":{"binary_data_size":%d}`, len(cells)))), cells)
	f.Add([]byte(object("FP64", `"parameters":{"binary_data_size":48}`)), make([]byte, 48))
	f.Add([]byte(object("FP32", `"data":[1,null,2,1,2,3]`)), []byte{})
	f.Fuzz(func(t *testing.T, object, behind []byte) {
		x, _, why := v2.Parsed(append(object, behind...), len(object), wild)
		if why != "" {
			if len(why) > 4096 {
				t.Errorf("a refusal of %d bytes", len(why))
			}
			return
		}
		if len(x) == 0 || len(x)%len(wild.Columns) != 0 || len(x) > v2.MaxRows*len(wild.Columns) {
			t.Fatalf("%d values", len(x))
		}
		if strings.Contains(string(object), `"BYTES"`) {
			for row := range slices.Chunk(x, len(wild.Columns)) {
				if row[0]+row[1]+row[2] != 1 || row[4]+row[5] != 1 || row[3]-row[3] != 0 {
					t.Fatalf("a row became %v", row)
				}
			}
		}
	})
}

// FuzzBinary: bytes of any datatype, with any size said.
func FuzzBinary(f *testing.F) {
	for _, d := range []string{"FP32", "FP64", "FP16", "BF16", "INT8", "INT64", "UINT16", "BOOL", "BYTES", ""} {
		f.Add(d, int64(24), 2, make([]byte, 24))
	}
	f.Fuzz(func(t *testing.T, datatype string, size int64, rows int, b []byte) {
		name, _ := json.Marshal(datatype)
		object := fmt.Sprintf(`{"inputs":[{"name":"input","shape":[%d,3],"datatype":%s,"parameters":{"binary_data_size":%d}}]}`, rows, name, size)
		x, _, why := v2.Parsed(append([]byte(object), b...), len(object), facts)
		if why == "" && (len(x) != 3*rows || int64(len(b)) != size) {
			t.Errorf("%d values of %d rows from %d bytes", len(x), rows, len(b))
		}
	})
}

// Half precision against its definition (IEEE 754: (-1)^s × 2^(e−15) × 1.f), all 65,536 values.
func TestHalf(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		sign, exp, frac := 1-2*float64(h>>15), int(h>>10&0x1f), float64(h&0x3ff)
		want := sign * math.Ldexp(1+frac/1024, exp-15)
		switch {
		case exp == 0:
			want = sign * math.Ldexp(frac/1024, -14)
		case exp == 31 && frac != 0:
			want = math.NaN()
		case exp == 31:
			want = math.Inf(int(sign))
		}
		got := float64(v2.Half(h))
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) || math.Signbit(got) != (h>>15 == 1) {
			t.Fatalf("%#04x is %v, want %v", h, got, want)
		}
	}
}
