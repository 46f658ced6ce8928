package safetensors

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"

	oracle "github.com/nlpodyssey/safetensors"
	"pgregory.net/rapid"

	"tensorturn/domain"
)

func TestWriterRefuses(t *testing.T) {
	for name, ts := range map[string][]Tensor{
		"order":         {{"b", F32, nil}, {"a", F32, nil}},
		"twice":         {{"a", F32, nil}, {"a", F32, nil}},
		"empty name":    {{"", F32, nil}},
		"reserved name": {{metadataKey, F32, nil}},
		"bad utf-8":     {{"\xff", F32, nil}},
		"dtype":         {{"a", "F7", nil}},
		"negative":      {{"a", F32, []int64{-1}}},
		"overflow":      {{"a", F64, []int64{1 << 62}}},
		"sum overflows": {{"a", U8, []int64{1 << 62}}, {"b", U8, []int64{1 << 62}}},
		"dimensions":    {{"a", U8, make([]int64, MaxDims+1)}},
	} {
		if _, err := NewWriter(io.Discard, ts, nil); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	w, err := NewWriter(io.Discard, []Tensor{{"a", F32, []int64{2}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 7)); err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write(make([]byte, 2)); n != 0 || err == nil {
		t.Fatalf("wrote %d bytes too many, %v", n, err)
	}
	w, _ = NewWriter(io.Discard, []Tensor{{"a", F32, []int64{2}}}, nil)
	if _, err := w.Write(make([]byte, 7)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); domain.KindOf(err) != domain.KindInvalid {
		t.Fatalf("closed without all data: %v", err)
	}
}

func TestLayoutDigest(t *testing.T) {
	a, b := Tensor{"a", F32, []int64{2, 3}}, Tensor{"b", F32, nil}
	want := LayoutDigest([]Tensor{a, b})
	if got := LayoutDigest([]Tensor{b, a}); got != want {
		t.Fatal("depends on the order")
	}
	// For ever: events hold this digest.
	if want != "874fb8350aaaab7dc77d0b21e9fa9188d0236c9fad9007015fcf9bf7a40af59c" {
		t.Fatalf("changed: %s", want)
	}
	seen := map[domain.Digest]string{want: "the original"}
	for name, ts := range map[string][]Tensor{
		"fewer":      {a},
		"dtype":      {a, {"b", F64, nil}},
		"transposed": {{"a", F32, []int64{3, 2}}, b},
		"flat":       {{"a", F32, []int64{6}}, b},
		"scalar":     {a, {"b", F32, []int64{1}}},
		"renamed":    {a, {"c", F32, nil}},
		"forged":     {{"a F32[2,3]\n1:b", F32, nil}},
	} {
		d := LayoutDigest(ts)
		if other, ok := seen[d]; ok {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[d] = name
	}
}

func TestCompareNamesTheTensor(t *testing.T) {
	want := []Tensor{{"a", F32, []int64{2, 3}}, {"b", F32, nil}}
	for got, ts := range map[string][]Tensor{
		`read safetensors: tensor "a" is F32[3,2], wanted F32[2,3]`: {{"a", F32, []int64{3, 2}}, {"b", F32, nil}},
		`read safetensors: tensor "b" is F16[], wanted F32[]`:       {{"a", F32, []int64{2, 3}}, {"b", F16, nil}},
		`read safetensors: tensor 1 is "c", wanted "b"`:             {{"a", F32, []int64{2, 3}}, {"c", F32, nil}},
		`read safetensors: there are 1 tensors, wanted 2`:           {{"a", F32, []int64{2, 3}}},
	} {
		if err := Compare(want, ts); err == nil || err.Error() != got {
			t.Errorf("got %v, want %s", err, got)
		}
	}
	if err := Compare(want, slices.Clone(want)); err != nil {
		t.Fatal(err)
	}
}

var dtypes = []DType{F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, Bool}

// drawFile draws tensors in canonical order with their data.
func drawFile(t *rapid.T) ([]Tensor, map[string]string, []byte) {
	names := rapid.SliceOfNDistinct(rapid.StringN(1, 20, 60), 0, 6, rapid.ID).Draw(t, "names")
	slices.Sort(names)
	var ts []Tensor
	total := int64(0)
	for _, n := range names {
		shape := rapid.SliceOfN(rapid.Int64Range(0, 4), 0, 3).Draw(t, "shape")
		tensor := Tensor{n, rapid.SampledFrom(dtypes).Draw(t, "dtype"), shape}
		size, err := tensor.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		total += size
		ts = append(ts, tensor)
	}
	meta := rapid.MapOfN(rapid.String(), rapid.String(), 0, 4).Draw(t, "metadata")
	data := rapid.SliceOfN(rapid.Byte(), int(total), int(total)).Draw(t, "data")
	return ts, meta, data
}

func write(t rapid.TB, ts []Tensor, meta map[string]string, data []byte) []byte {
	var buf bytes.Buffer
	w, err := NewWriter(&buf, ts, meta)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// What we write, the library of others and we ourselves read alike.
func TestOracleReadsWhatWeWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ts, meta, data := drawFile(t)
		b := write(t, ts, meta, data)
		got, gotMeta, gotData, err := readAll(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := oracle.Deserialize(b)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(ts) || len(theirs.Names()) != len(ts) || !bytes.Equal(slices.Concat(gotData...), data) {
			t.Fatalf("%d tensors, we read %d, the oracle %d", len(ts), len(got), len(theirs.Names()))
		}
		if _, ok := meta["format"]; !ok {
			meta["format"] = "pt"
		}
		if !maps.Equal(meta, gotMeta) {
			t.Fatalf("metadata %v, got %v", meta, gotMeta)
		}
		for i, x := range got {
			view, ok := theirs.Tensor(x.Name)
			if !ok || !bytes.Equal(view.Data(), gotData[i]) || fmt.Sprint(view.DType()) != string(x.DType) {
				t.Fatalf("tensor %v differs", x)
			}
			for k, d := range view.Shape() {
				if uint64(x.Shape[k]) != uint64(d) {
					t.Fatalf("tensor %v has shape %v", x, view.Shape())
				}
			}
		}
		if LayoutDigest(ts) != LayoutDigest(got) {
			t.Fatal("layout digest differs")
		}
	})
}

// What we accept, the oracle accepts with the same meaning: we may only be stricter.
func FuzzReader(f *testing.F) {
	f.Add(file(one, 4))
	f.Add(file(`{"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[1,2],"data_offsets":[2,6]},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}  `, 6))
	f.Add(file(`{"a":{"dtype":"U8","shape":[0,9223372036854775807],"data_offsets":[0,0]}}`, 0))
	f.Add(file(`{"\ud800":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"\ufffd":{"dtype":"U8","shape":[],"data_offsets":[1,2]}}`, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		ts, meta, data, err := readAll(bytes.NewReader(b))
		if err != nil {
			if domain.KindOf(err) != domain.KindInvalid || len(err.Error()) > 200 {
				t.Fatalf("kind %s, %d bytes of text", domain.KindOf(err), len(err.Error()))
			}
			return
		}
		theirs, err := oracle.Deserialize(b)
		if err != nil {
			t.Fatalf("the oracle refuses what we accept: %v", err)
		}
		for i, x := range ts {
			view, ok := theirs.Tensor(x.Name)
			if !ok || !bytes.Equal(view.Data(), data[i]) {
				t.Fatalf("tensor %v differs", x)
			}
		}
		byName := map[string][]byte{}
		for i, x := range ts {
			byName[x.Name] = data[i]
		}
		slices.SortFunc(ts, func(a, b Tensor) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
		var all []byte
		for _, x := range ts {
			all = append(all, byName[x.Name]...)
		}
		if len(meta) >= MaxMetadata {
			return
		}
		again, againMeta, againData, err := readAll(bytes.NewReader(write(t, ts, meta, all)))
		if err != nil || Compare(ts, again) != nil || !bytes.Equal(slices.Concat(againData...), all) || len(againMeta) < len(meta) {
			t.Fatalf("written again it reads differently: %v", err)
		}
	})
}
