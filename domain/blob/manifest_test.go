package blob

import (
	"bytes"
	"strings"
	"testing"

	"tensorturn/domain"
)

// The id of a blob is for ever: these bytes never change.
func TestManifestGolden(t *testing.T) {
	m := Manifest{Size: 5, Parts: []domain.Digest{Sum([]byte("hello"))}}
	want := "tensorturn-blob 1\nsize 5\npart 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824\n"
	if got := string(m.Encode()); got != want {
		t.Fatalf("got %q", got)
	}
	if got := (Manifest{}).Encode(); string(got) != "tensorturn-blob 1\nsize 0\n" {
		t.Fatalf("empty: %q", got)
	}
	if got := m.Digest(); got != "edd3cb004e0dde40512b435bbc4deb5900b563fb52165c76c0fa0112d950acde" {
		t.Fatalf("id %s", got)
	}
}

func TestParseIsStrict(t *testing.T) {
	d := string(Sum([]byte("x")))
	good := "tensorturn-blob 1\nsize 5\npart " + d + "\n"
	if _, err := Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty":              "",
		"another version":    strings.Replace(good, "blob 1", "blob 2", 1),
		"crlf":               strings.ReplaceAll(good, "\n", "\r\n"),
		"no size":            "tensorturn-blob 1\n",
		"size without end":   "tensorturn-blob 1\nsize 0",
		"leading zero":       strings.Replace(good, "size 5", "size 05", 1),
		"plus sign":          strings.Replace(good, "size 5", "size +5", 1),
		"negative":           strings.Replace(good, "size 5", "size -5", 1),
		"no number":          strings.Replace(good, "size 5", "size ", 1),
		"hex":                strings.Replace(good, "size 5", "size 0x5", 1),
		"too large":          strings.Replace(good, "size 5", "size 274877906945", 1),
		"overflow":           strings.Replace(good, "size 5", "size 99999999999999999999", 1),
		"two parts for one":  good + "part " + d + "\n",
		"no part":            "tensorturn-blob 1\nsize 5\n",
		"part for nothing":   strings.Replace(good, "size 5", "size 0", 1),
		"upper case":         strings.Replace(good, d, strings.ToUpper(d), 1),
		"short digest":       strings.Replace(good, d, d[:63], 1),
		"other label":        strings.Replace(good, "part ", "Part ", 1),
		"line end missing":   strings.TrimSuffix(good, "\n"),
		"line end replaced":  strings.TrimSuffix(good, "\n") + " ",
		"something behind":   good + "\n",
		"more than a limit":  good + strings.Repeat("x", MaxManifestBytes),
		"one part too large": strings.Replace(good, "size 5", "size 8388609", 1),
	} {
		_, err := Parse([]byte(text))
		if domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%s: accepted or of another kind: %v", name, err)
		} else if len(err.Error()) > 200 {
			t.Errorf("%s: error has %d bytes", name, len(err.Error()))
		}
	}
}

func FuzzParse(f *testing.F) {
	d := string(Sum([]byte("x")))
	f.Add([]byte("tensorturn-blob 1\nsize 5\npart " + d + "\n"))
	f.Add([]byte("tensorturn-blob 1\nsize 8388609\npart " + d + "\npart " + d + "\n"))
	f.Add([]byte("tensorturn-blob 1\nsize 0\n"))
	f.Add([]byte("tensorturn-blob 1\nsize -1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			if domain.KindOf(err) != domain.KindInvalid || len(err.Error()) > 200 {
				t.Fatalf("error of kind %s and %d bytes", domain.KindOf(err), len(err.Error()))
			}
			return
		}
		if !bytes.Equal(m.Encode(), b) {
			t.Fatal("two texts for one manifest")
		}
	})
}
