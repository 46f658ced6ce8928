package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"tensorturn/domain"
)

// file makes a file from header text and data.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

// readAll reads a whole file as the merge does and returns every tensor's data.
func readAll(src io.Reader) ([]Tensor, map[string]string, [][]byte, error) {
	r, err := NewReader(src)
	if err != nil {
		return nil, nil, nil, err
	}
	var data [][]byte
	for {
		_, d, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r.Tensors(), r.Metadata(), data, nil
		}
		if err != nil {
			return nil, nil, nil, err
		}
		b, err := io.ReadAll(d)
		if err != nil {
			return nil, nil, nil, err
		}
		data = append(data, b)
	}
}

func TestGoldenFile(t *testing.T) {
	ts := []Tensor{{"a", F32, []int64{2}}, {"b\"\n", U8, nil}, {"c", F64, []int64{0, 3}}}
	var buf bytes.Buffer
	w, err := NewWriter(&buf, ts, map[string]string{"x": "1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	want := `{"__metadata__":{"format":"pt","x":"1"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},` +
		`"b\"\u000a":{"dtype":"U8","shape":[],"data_offsets":[8,9]},"c":{"dtype":"F64","shape":[0,3],"data_offsets":[9,9]}}`
	for len(want)%8 != 0 {
		want += " "
	}
	want = string(binary.LittleEndian.AppendUint64(nil, uint64(len(want)))) + want + "\x01\x02\x03\x04\x05\x06\x07\x08\x09"
	if buf.String() != want {
		t.Fatalf("got\n%q\nwant\n%q", buf.String(), want)
	}
	if size, err := Size(ts, map[string]string{"x": "1"}); err != nil || size != int64(buf.Len()) || size != w.Size() {
		t.Fatalf("size %d, %d, %v; the file has %d bytes", size, w.Size(), err, buf.Len())
	}
	got, meta, data, err := readAll(iotest.OneByteReader(&buf))
	if err != nil || Compare(ts, got) != nil || meta["x"] != "1" || meta["format"] != "pt" || string(data[1]) != "\x09" {
		t.Fatalf("read back %v %v %v %v", got, meta, data, err)
	}
}

func TestReaderAcceptsForeignOrderAndKeys(t *testing.T) {
	b := file(`{ "z" : {"data_offsets":[0,4],"shape":[1],"dtype":"F32"},
		"a":{"shape":[2,2],"dtype":"U8","data_offsets":[4,8]}, "e":{"dtype":"I64","shape":[0],"data_offsets":[4,4]} }   `, 8)
	copy(b[len(b)-8:], "abcdefgh")
	ts, _, data, err := readAll(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	names := ts[0].Name + ts[1].Name + ts[2].Name
	if names != "zea" || string(data[0]) != "abcd" || len(data[1]) != 0 || string(data[2]) != "efgh" {
		t.Fatalf("order %s, data %q", names, data)
	}
	if Canonical(ts) {
		t.Fatal("z before a counts as canonical")
	}
}

func TestNextSkipsAndEndsOldReaders(t *testing.T) {
	b := file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}}`, 6)
	copy(b[len(b)-6:], "abcdef")
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	_, first, _ := r.Next()
	if _, err := io.ReadFull(first, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	_, second, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := first.Read(make([]byte, 4)); n != 0 || err != io.EOF {
		t.Fatalf("the old reader gives %d bytes, %v", n, err)
	}
	if got, _ := io.ReadAll(second); string(got) != "ef" {
		t.Fatalf("second tensor is %q", got)
	}
	for range 2 {
		if _, _, err := r.Next(); err != io.EOF {
			t.Fatalf("at the end: %v", err)
		}
	}
}

const one = `{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`

func TestHostileFiles(t *testing.T) {
	length := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	tensors := func(s string) []byte { return file(s, 8) }
	for name, b := range map[string][]byte{
		"empty":                   nil,
		"half a length":           {1, 2, 3},
		"no header":               length(0),
		"header behind the file":  append(length(100), '{', '}'),
		"length of 2^64-1":        append(length(math.MaxUint64), '{', '}'),
		"length above the limit":  append(length(MaxHeaderBytes+1), '{', '}'),
		"null":                    file("null", 0),
		"array":                   file("[]", 0),
		"space first":             file(" {}", 0),
		"text behind":             file("{}x", 0),
		"second object":           file("{}{}", 0),
		"not closed":              file(`{"a":{"dtype":"U8"`, 0),
		"trailing comma":          file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},}`, 4),
		"bad utf-8":               file("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1),
		"trailing bytes":          append(file(one, 4), 0),
		"data cut":                file(one, 3),
		"name twice":              tensors(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`),
		"name twice, escaped":     tensors(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"\u0061":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`),
		"key twice":               tensors(`{"a":{"dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8]}}`),
		"metadata twice":          file(`{"__metadata__":{},"__metadata__":{}}`, 0),
		"metadata key twice":      file(`{"__metadata__":{"a":"b","a":"c"}}`, 0),
		"metadata not text":       file(`{"__metadata__":{"a":1}}`, 0),
		"metadata null":           file(`{"__metadata__":null}`, 0),
		"unknown key":             tensors(`{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1}}`),
		"key missing":             tensors(`{"a":{"dtype":"U8","shape":[8]}}`),
		"tensor null":             tensors(`{"a":null}`),
		"empty name":              tensors(`{"":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}`),
		"long name":               tensors(`{"` + strings.Repeat("n", MaxTensorName+1) + `":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}`),
		"unknown dtype":           tensors(`{"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}}`),
		"dtype a number":          tensors(`{"a":{"dtype":1,"shape":[8],"data_offsets":[0,8]}}`),
		"shape a text":            tensors(`{"a":{"dtype":"U8","shape":"` + strings.Repeat("x", 1<<20) + `","data_offsets":[0,8]}}`),
		"shape nested":            tensors(`{"a":{"dtype":"U8","shape":[[8]],"data_offsets":[0,8]}}`),
		"shape fractional":        tensors(`{"a":{"dtype":"U8","shape":[8.0],"data_offsets":[0,8]}}`),
		"shape with exponent":     tensors(`{"a":{"dtype":"U8","shape":[8e0],"data_offsets":[0,8]}}`),
		"shape negative":          tensors(`{"a":{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}}`),
		"shape minus zero":        file(`{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}`, 0),
		"shape of 2^63":           tensors(`{"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,8]}}`),
		"too many dimensions":     tensors(`{"a":{"dtype":"U8","shape":[8` + strings.Repeat(",1", MaxDims) + `],"data_offsets":[0,8]}}`),
		"count overflows":         tensors(`{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`),
		"overflow behind a zero":  file(`{"a":{"dtype":"U8","shape":[0,9223372036854775807,9223372036854775807],"data_offsets":[0,0]}}`, 0),
		"bytes overflow":          tensors(`{"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}}`),
		"one offset":              tensors(`{"a":{"dtype":"U8","shape":[8],"data_offsets":[8]}}`),
		"three offsets":           tensors(`{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8,8]}}`),
		"ends before it begins":   tensors(`{"a":{"dtype":"U8","shape":[8],"data_offsets":[8,0]}}`),
		"shape and offsets apart": tensors(`{"a":{"dtype":"U8","shape":[7],"data_offsets":[0,8]}}`),
		"hole in front":           tensors(`{"a":{"dtype":"U8","shape":[7],"data_offsets":[1,8]}}`),
		"hole inside":             tensors(`{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`),
		"overlap":                 tensors(`{"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`),
		"alias":                   tensors(`{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}`),
	} {
		t.Run(name, func(t *testing.T) {
			_, _, _, err := readAll(bytes.NewReader(b))
			if domain.KindOf(err) != domain.KindInvalid {
				t.Fatalf("accepted, or another kind: %v", err)
			}
			if len(err.Error()) > 200 {
				t.Fatalf("the error has %d bytes", len(err.Error()))
			}
		})
	}
	if _, _, _, err := readAll(bytes.NewReader(file(one, 4))); err != nil {
		t.Fatalf("the good file the cases are made from: %v", err)
	}
}

func many(n int) string {
	var s strings.Builder
	s.WriteString("{")
	for i := range n {
		if i > 0 {
			s.WriteString(",")
		}
		fmt.Fprintf(&s, `"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`, i)
	}
	return s.String() + "}"
}

func TestLimits(t *testing.T) {
	name := strings.Repeat("n", MaxTensorName)
	meta := func(n int) string {
		var s strings.Builder
		for i := range n {
			fmt.Fprintf(&s, `,"%x":""`, i)
		}
		return `{"__metadata__":{` + strings.TrimPrefix(s.String(), ",") + `}}`
	}
	for what, at := range map[string]string{
		"tensors":  many(MaxTensors),
		"header":   "{}" + strings.Repeat(" ", MaxHeaderBytes-2),
		"name":     `{"` + name + `":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`,
		"dims":     `{"a":{"dtype":"U8","shape":[0` + strings.Repeat(",1", MaxDims-1) + `],"data_offsets":[0,0]}}`,
		"metadata": meta(MaxMetadata),
	} {
		if _, err := NewReader(bytes.NewReader(file(at, 0))); err != nil {
			t.Errorf("%s at the limit: %v", what, err)
		}
	}
	for what, behind := range map[string]string{"tensors": many(MaxTensors + 1), "metadata": meta(MaxMetadata + 1)} {
		if _, err := NewReader(bytes.NewReader(file(behind, 0))); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%s behind the limit: %v", what, err)
		}
	}
}

// A header is at most 8 MiB. Whatever stands in it, all that is ever allocated for it, most of it garbage at once, stays
// within 128 MiB; 90 MB of header with 1.5 M tensors cost another library 1.5 GB of live heap.
func TestHostileHeadersCostLittle(t *testing.T) {
	pad := func(s string) string { return s + strings.Repeat(" ", MaxHeaderBytes-len(s)) }
	big := MaxHeaderBytes - 64
	for name, b := range map[string][]byte{
		"as many tensors as go": file(pad(many(MaxTensors)), 0),
		"too many tensors":      file(many(110_000), 0),
		"metadata pairs":        file(`{"__metadata__":{`+strings.Repeat(`"a":"",`, big/7)+`"b":""}}`, 0),
		"nesting":               file(`{"a":`+strings.Repeat("[", big), 0),
		"long number":           file(`{"a":{"shape":[`+strings.Repeat("9", big)+`]}}`, 0),
		"long text":             file(`{"a":{"dtype":"`+strings.Repeat("x", big)+`"}}`, 0),
		"many dimensions":       file(`{"a":{"shape":[`+strings.Repeat("1,", big/2)+`1]}}`, 0),
		"announced, not there":  binary.LittleEndian.AppendUint64(nil, MaxHeaderBytes),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := NewReader(bytes.NewReader(b))
		runtime.ReadMemStats(&after)
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 128 {
			t.Errorf("%s: allocated %d MiB in all", name, took)
		}
		if name != "as many tensors as go" && domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSourceErrorsKeepTheirKind(t *testing.T) {
	b := file(one, 4)
	gone := domain.Unavailable("get part", "link lost", "", nil)
	for cut := range len(b) {
		_, _, _, err := readAll(io.MultiReader(bytes.NewReader(b[:cut]), iotest.ErrReader(gone)))
		if !errors.Is(err, gone) || domain.KindOf(err) != domain.KindUnavailable {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if _, _, _, err := readAll(bytes.NewReader(b[:cut])); domain.KindOf(err) != domain.KindInvalid {
			t.Fatalf("truncated at %d: %v", cut, err)
		}
	}
	if _, _, _, err := readAll(io.MultiReader(bytes.NewReader(b), iotest.ErrReader(gone))); !errors.Is(err, gone) {
		t.Fatalf("at the end: %v", err)
	}
}
