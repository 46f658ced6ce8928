package dataset

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"tensorturn/domain"
)

// idx is a file of bytes with dimensions.
func idx(values []byte, dims ...uint32) []byte {
	out := []byte{0, 0, 8, byte(len(dims))}
	for _, d := range dims {
		out = binary.BigEndian.AppendUint32(out, d)
	}
	return append(out, values...)
}

// album is n pictures of 3 × 4 whose values and labels can be told.
func album(n int) (pictures, labels []byte) {
	values := make([]byte, 12*n)
	for i := range values {
		values[i] = byte(i * 7)
	}
	names := make([]byte, n)
	for i := range names {
		names[i] = byte(i%3) * 5
	}
	return idx(values, uint32(n), 3, 4), idx(names, uint32(n))
}

func TestIDX(t *testing.T) {
	pictures, labels := album(30)
	for _, form := range []string{"plain", "gzip"} {
		a, b := pictures, labels
		if form == "gzip" {
			a, b = zipped(t, string(a)), zipped(t, string(b))
		} else if !IsIDX(a) || !IsIDX(b) || IsIDX([]byte("1,2")) {
			t.Error("a file is not told by its first bytes")
		}
		p, err := ReadIDX(bytes.NewReader(a), bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		f, err := PackIDX(p, 0.2, 1, &out)
		if err != nil {
			t.Fatal(err)
		}
		set, err := Open(bytes.NewReader(out.Bytes()), int64(out.Len()))
		if err != nil {
			t.Fatal(err)
		}
		if f.Samples != 24 || f.Heldout != 6 || len(f.Classes) != 3 || f.Classes[2] != "10" || f.Shape[1] != 3 || f.rowBytes() != 16 {
			t.Errorf("%s: %+v", form, f)
		}
		x, y := make([]float32, 24*12), make([]int, 24)
		if err := set.Rows(numbers(24), x, y); err != nil {
			t.Fatal(err)
		}
		sum, square := 0.0, 0.0
		for i := range 24 {
			v := math.Round(float64(x[12*i])*f.Std[0] + f.Mean[0])
			found := false
			for k := range 30 { // a picture is told by its first value
				found = found || p.Values[12*k] == byte(v) && y[i] == k%3
			}
			if !found {
				t.Errorf("row %d begins with %v and has class %d", i, v, y[i])
			}
			for _, v := range x[12*i : 12*i+12] {
				sum += float64(v)
				square += float64(v) * float64(v)
			}
		}
		if math.Abs(sum) > 1e-3 || math.Abs(square-24*12) > 1e-2 {
			t.Errorf("standardised values sum to %v, their squares to %v", sum, square)
		}
	}
}

func TestIDXOfColours(t *testing.T) {
	p, err := ReadIDX(bytes.NewReader(idx(make([]byte, 2*3*4*5), 2, 3, 4, 5)), bytes.NewReader(idx([]byte{0, 1}, 2)))
	if err != nil || p.Shape[0] != 3 || p.Shape[1] != 4 || p.Shape[2] != 5 {
		t.Errorf("%v %v", p, err)
	}
}

func TestIDXIsRefused(t *testing.T) {
	pictures, labels := album(30)
	floats := bytes.Clone(pictures)
	floats[2] = 0x0d
	one := idx(make([]byte, 30), 30)
	for name, c := range map[string][2][]byte{
		"empty":               {nil, labels},
		"cut head":            {pictures[:9], labels},
		"cut values":          {pictures[:len(pictures)-1], labels},
		"trailing":            {append(bytes.Clone(pictures), 0), labels},
		"floats":              {floats, labels},
		"text":                {[]byte("hello, world"), labels},
		"swapped":             {labels, pictures},
		"labels of others":    {pictures, idx([]byte{1, 2}, 2)},
		"no labels":           {pictures, nil},
		"labels are pictures": {pictures, pictures},
		"endless":             {idx(nil, 1<<31, 1<<31, 4), labels},
		"overflow":            {idx(nil, math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32), labels},
		"none":                {idx(nil, 0, 3, 4), idx(nil, 0)},
		"cut gzip":            {zipped(t, string(pictures))[:30], labels},
	} {
		if _, err := ReadIDX(bytes.NewReader(c[0]), bytes.NewReader(c[1])); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	p, err := ReadIDX(bytes.NewReader(pictures), bytes.NewReader(one))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := PackIDX(p, 0.2, 1, &bytes.Buffer{}); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("one class: %v", err)
	}
}

// Foreign bytes are pictures that can be packed and read back, or refused; memory follows the bytes.
func FuzzIDX(f *testing.F) {
	pictures, labels := album(9)
	f.Add(pictures, labels)
	f.Add(zipped(f, string(pictures)), labels)
	f.Add(idx(nil, 1<<30, 1, 1), labels)
	f.Fuzz(func(t *testing.T, a, b []byte) {
		p, err := ReadIDX(bytes.NewReader(a), bytes.NewReader(b))
		if err != nil {
			if domain.KindOf(err) != domain.KindInvalid || len(err.Error()) > 1000 {
				t.Fatalf("error %v", err)
			}
			return
		}
		var out bytes.Buffer
		facts, err := PackIDX(p, 0.2, 1, &out)
		if err != nil {
			return
		}
		set, err := Open(bytes.NewReader(out.Bytes()), int64(out.Len()))
		if err != nil {
			t.Fatal(err)
		}
		if err := set.Rows([]int{facts.Samples - 1}, make([]float32, facts.Features()), make([]int, 1)); err != nil {
			t.Fatal(err)
		}
	})
}
