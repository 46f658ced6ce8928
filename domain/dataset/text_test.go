package dataset

import (
	"bytes"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"tensorturn/domain"
)

// story is a text whose every place can be told: bytes of a counter.
func story(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(r.IntN(Bytes))
	}
	return out
}

func packText(t testing.TB, text []byte, o TextOptions, holdout float64) (Facts, []byte) {
	t.Helper()
	var out bytes.Buffer
	f, err := PackText(text, o, holdout, 1, &out)
	if err != nil {
		t.Fatal(err)
	}
	return f, out.Bytes()
}

// Every sample is a stretch of the text, each predicted byte belongs to one sample, and nobody trains on a held-out one.
func TestTextSamples(t *testing.T) {
	text := story(30_000)
	for _, o := range []TextOptions{{8, 1}, {1, 1}, {64, 64}, {300, 1}} {
		f, raw := packText(t, text, o, 0.3)
		set, err := Open(bytes.NewReader(raw), int64(len(raw)))
		if err != nil {
			t.Fatal(err)
		}
		predicted := map[int]int{} // place in the text: times
		see := func(context []float32, labels []int) {
			window := make([]byte, 0, len(context)+len(labels))
			for _, v := range context {
				window = append(window, byte(v))
			}
			if o.Predicts == 1 {
				window = append(window, byte(labels[0]))
			} else {
				for i := range labels[:len(labels)-1] {
					if labels[i] != int(context[i+1]) {
						t.Fatalf("%v: label %d is not the byte behind place %d", o, i, i)
					}
				}
				window = append(window, byte(labels[len(labels)-1]))
			}
			at := bytes.Index(text, window)
			if o.Context >= 8 && at < 0 {
				t.Fatalf("%v: a sample is no part of the text", o)
			}
			for i := range labels {
				predicted[at+len(window)-len(labels)+i]++
			}
		}
		x, y := make([]float32, f.Samples*f.Features()), make([]int, f.Samples*f.Targets())
		idx := rand.New(rand.NewPCG(3, 4)).Perm(f.Samples)
		if err := set.Rows(idx, x, y); err != nil {
			t.Fatal(err)
		}
		for i := range idx {
			see(x[i*f.Features():(i+1)*f.Features()], y[i*f.Targets():(i+1)*f.Targets()])
		}
		x, y = make([]float32, f.Heldout*f.Features()), make([]int, f.Heldout*f.Targets())
		if err := set.Heldout(0, f.Heldout, x, y); err != nil {
			t.Fatal(err)
		}
		for i := range f.Heldout {
			see(x[i*f.Features():(i+1)*f.Features()], y[i*f.Targets():(i+1)*f.Targets()])
		}
		if o.Context < 8 {
			continue // short windows stand at several places
		}
		for at, n := range predicted {
			if n != 1 {
				t.Fatalf("%v: byte %d is predicted %d times", o, at, n)
			}
		}
		if got := len(predicted); float64(got) < 0.75*float64(len(text)) {
			t.Errorf("%v: only %d of %d bytes are predicted", o, got, len(text))
		}
		if share := float64(f.Heldout) / float64(f.Heldout+f.Samples); share < 0.25 || share > 0.35 {
			t.Errorf("%v: %v of the text is held out", o, share)
		}
	}
}

func TestTextIsPackedRepeatably(t *testing.T) {
	text := story(200_000)
	_, a := packText(t, text, TextOptions{8, 1}, 0.05)
	f, b := packText(t, text, TextOptions{8, 1}, 0.05)
	if !bytes.Equal(a, b) {
		t.Error("equal texts are packed to other bytes")
	}
	if f.Segment != segmentBytes+8 || f.perSegment() != segmentBytes || f.Heldout != 2*segmentBytes {
		t.Errorf("segments of %d bytes with %d samples, %d held out", f.Segment, f.perSegment(), f.Heldout)
	}
}

func TestPackTextRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		text []byte
		o    TextOptions
		hold float64
	}{
		"too short":         {story(17), TextOptions{8, 1}, 0.1},
		"empty":             {nil, TextOptions{8, 1}, 0.1},
		"no context":        {story(1000), TextOptions{0, 1}, 0.1},
		"predicts in part":  {story(1000), TextOptions{8, 4}, 0.1},
		"predicts nothing":  {story(1000), TextOptions{8, 0}, 0.1},
		"all held out":      {story(1000), TextOptions{8, 1}, 1},
		"endless context":   {story(1000), TextOptions{MaxColumns, 1}, 0.1},
		"longer than limit": {make([]byte, MaxCorpusBytes+1), TextOptions{8, 1}, 0.1},
	} {
		if _, err := PackText(c.text, c.o, c.hold, 1, &bytes.Buffer{}); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if f, _ := packText(t, story(18), TextOptions{8, 1}, 0.1); f.Samples != 1 || f.Heldout != 1 {
		t.Errorf("the shortest text makes %d and %d samples", f.Samples, f.Heldout)
	}
}

func TestOpenRefusesText(t *testing.T) {
	_, raw := packText(t, story(5000), TextOptions{8, 1}, 0.2)
	for name, edit := range map[string]func(map[string]any){
		"predicts nothing":     func(h map[string]any) { h["predicts"] = -1 },
		"predicts more":        func(h map[string]any) { h["predicts"] = 5 },
		"no segment":           func(h map[string]any) { delete(h, "segment") },
		"short segment":        func(h map[string]any) { h["segment"] = 8 },
		"endless segment":      func(h map[string]any) { h["segment"] = 1 << 40 },
		"part of a segment":    func(h map[string]any) { h["samples"] = h["samples"].(float64) - 1 },
		"no samples":           func(h map[string]any) { h["samples"] = 0 },
		"samples beyond bytes": func(h map[string]any) { h["samples"] = h["samples"].(float64) * 2 },
		"classes":              func(h map[string]any) { h["classes"] = []string{"a", "b"} },
		"block":                func(h map[string]any) { h["block"] = 3 },
	} {
		bad := rewritten(t, raw, edit)
		if _, err := Open(bytes.NewReader(bad), int64(len(bad))); domain.KindOf(err) != domain.KindIntegrity {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadText(t *testing.T) {
	root := fstest.MapFS{
		"d/b.txt":      {Data: []byte("second")},
		"d/a/z.md":     {Data: []byte("first")},
		"d/.git/x":     {Data: []byte("hidden")},
		"d/.hidden":    {Data: []byte("hidden")},
		"d/picture":    {Data: []byte("a\x00b")},
		"d/empty":      {},
		"d/c.gz":       {Data: zipped(t, "third")},
		"none/picture": {Data: []byte{0}},
	}
	c, err := ReadText(root, "d")
	if err != nil || string(c.Text) != "first\x00second\x00third" || c.Files != 3 || c.Other != 1 {
		t.Errorf("%q, %d files, %d others, %v", c.Text, c.Files, c.Other, err)
	}
	if c, err := ReadText(root, "d/b.txt"); err != nil || string(c.Text) != "second" {
		t.Errorf("%q %v", c.Text, err)
	}
	for _, name := range []string{"none", "nowhere"} {
		if _, err := ReadText(root, name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	root["d/c.gz"].Data = slices.Clip(root["d/c.gz"].Data[:20])
	if _, err := ReadText(root, "d"); err == nil || !strings.Contains(err.Error(), "c.gz") {
		t.Errorf("a cut stream: %v", err)
	}
}

// zeros is a file of zeros that says how much of it was read.
type zeros struct {
	fs.File
	read int
}

func (z *zeros) Read(p []byte) (int, error) {
	clear(p)
	z.read += len(p)
	return len(p), nil
}

func (*zeros) Close() error { return nil }

// oneFile is a folder's way to a file of its own.
type oneFile struct {
	fs.FS
	name string
	file fs.File
}

func (o oneFile) Open(name string) (fs.File, error) {
	if name == o.name {
		return o.file, nil
	}
	return o.FS.Open(name)
}

// What is no text is told by its beginning: it may be larger than any text, and does not spoil the folder.
func TestLargeFilesThatAreNoTextAreLeftOut(t *testing.T) {
	picture := &zeros{}
	root := oneFile{fstest.MapFS{"d/a.txt": {Data: []byte("text")}, "d/weights": {Data: []byte{0}}}, "d/weights", picture}
	c, err := ReadText(root, "d")
	if err != nil || string(c.Text) != "text" || c.Other != 1 {
		t.Errorf("%q, %d others, %v", c.Text, c.Other, err)
	}
	if picture.read > 1<<20 {
		t.Errorf("%d bytes were read to see that", picture.read)
	}
}

// Foreign headers of text open to a set whose every sample can be read, or not at all.
func FuzzOpenText(f *testing.F) {
	_, raw := packText(f, story(400), TextOptions{8, 1}, 0.2)
	f.Add(raw)
	_, raw = packText(f, story(400), TextOptions{4, 4}, 0.2)
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		set, err := Open(bytes.NewReader(raw), int64(len(raw)))
		if err != nil {
			if domain.KindOf(err) != domain.KindIntegrity || len(err.Error()) > 1000 {
				t.Fatalf("error %v", err)
			}
			return
		}
		facts := set.Facts()
		if facts.Predicts == 0 {
			return
		}
		if facts.Samples > 1<<16 || facts.Heldout > 1<<16 || facts.Features() > 1<<10 {
			return // not worth the memory
		}
		x, y := make([]float32, facts.Features()), make([]int, facts.Targets())
		for i := range facts.Samples {
			if err := set.Rows([]int{i}, x, y); err != nil {
				t.Fatal(err)
			}
		}
		for i := range facts.Heldout {
			if err := set.Heldout(i, 1, x, y); err != nil {
				t.Fatal(err)
			}
		}
	})
}
