package dataset

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"tensorturn/domain"
)

// counted counts the reads and the bytes that a set asks for.
type counted struct {
	io.ReaderAt
	reads int
	bytes int64
	most  int // bytes of one read
}

func (c *counted) ReadAt(p []byte, at int64) (int, error) {
	c.reads++
	c.bytes += int64(len(p))
	c.most = max(c.most, len(p))
	return c.ReaderAt.ReadAt(p, at)
}

// wide is a packed table of rows × features whose first feature is the file's row number before it is standardised.
func wide(t testing.TB, rows, features int) (Facts, []byte) {
	t.Helper()
	table := &Table{Label: "label", Classes: []string{"x", "y"}}
	for j := range features {
		table.Columns = append(table.Columns, fmt.Sprintf("f%d", j))
	}
	for i := range rows {
		table.Labels = append(table.Labels, i%2)
		for j := range features {
			table.Values = append(table.Values, float64(i+j*i%7))
		}
	}
	return pack(t, table, 0.25, 1)
}

func TestRowsInAnyOrder(t *testing.T) {
	const features = 40
	f, raw := wide(t, 3000, features)
	set, err := Open(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	all, labels := make([]float32, f.Samples*features), make([]int, f.Samples)
	if err := set.Rows(numbers(f.Samples), all, labels); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, idx := range [][]int{{0}, {f.Samples - 1}, {5, 5, 5}, {9, 8, 7, 6}, rng.Perm(f.Samples), rng.Perm(f.Samples)[:100], {}} {
		x, y := make([]float32, len(idx)*features), make([]int, len(idx))
		if err := set.Rows(idx, x, y); err != nil {
			t.Fatal(err)
		}
		for i, r := range idx {
			if y[i] != labels[r] || !slices.Equal(x[i*features:(i+1)*features], all[r*features:(r+1)*features]) {
				t.Fatalf("place %d is not row %d", i, r)
			}
		}
	}
}

func TestRowsReadOnlyWhatIsAsked(t *testing.T) {
	f, raw := wide(t, 3000, 40)
	src := &counted{ReaderAt: bytes.NewReader(raw)}
	set, err := Open(src, int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	row := f.rowBytes()
	for _, c := range []struct {
		name  string
		idx   []int
		reads int
		bytes int64
	}{
		{"neighbours in any order are one read", []int{12, 10, 11, 13}, 1, 4 * row},
		{"a small gap is read over", []int{10, 20}, 1, 11 * row},
		{"a large gap is not", []int{10, 1000}, 2, 2 * row},
		{"a long run is cut", numbers(f.Samples), 1, int64(f.Samples) * row},
	} {
		src.reads, src.bytes = 0, 0
		x, y := make([]float32, len(c.idx)*40), make([]int, len(c.idx))
		if err := set.Rows(c.idx, x, y); err != nil {
			t.Fatal(err)
		}
		if src.reads != c.reads || src.bytes != c.bytes {
			t.Errorf("%s: %d reads of %d bytes, want %d of %d", c.name, src.reads, src.bytes, c.reads, c.bytes)
		}
	}
}

// Reads stay within the scratch buffer's size however many neighbours are asked for, in both parts, and what several
// reads gave is what single ones give.
func TestReadsAreBounded(t *testing.T) {
	const features = 2000
	f, raw := wide(t, 600, features)
	src := &counted{ReaderAt: bytes.NewReader(raw)}
	set, err := Open(src, int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	one, label := make([]float32, features), make([]int, 1)
	for _, part := range []struct {
		name string
		rows int
		all  func(x []float32, y []int) error
		one  func(i int) error
	}{
		{"training", f.Samples, func(x []float32, y []int) error { return set.Rows(numbers(f.Samples), x, y) },
			func(i int) error { return set.Rows([]int{i}, one, label) }},
		{"held-out", f.Heldout, func(x []float32, y []int) error { return set.Heldout(0, f.Heldout, x, y) },
			func(i int) error { return set.Heldout(i, 1, one, label) }},
	} {
		src.reads, src.most = 0, 0
		x, y := make([]float32, part.rows*features), make([]int, part.rows)
		if err := part.all(x, y); err != nil {
			t.Fatal(err)
		}
		if src.reads < 2 || src.most > maxSpan {
			t.Errorf("%s: %d reads, the largest of %d bytes", part.name, src.reads, src.most)
		}
		for i := 0; i < part.rows; i += 37 {
			if err := part.one(i); err != nil {
				t.Fatal(err)
			}
			if label[0] != y[i] || !slices.Equal(one, x[i*features:(i+1)*features]) {
				t.Errorf("%s: row %d differs when read alone", part.name, i)
			}
		}
	}
}

// Held-out rows are the last ones of the blob, in the file's order.
func TestHeldoutKeepsTheOrder(t *testing.T) {
	f, raw := wide(t, 1000, 3)
	set, err := Open(bytes.NewReader(raw), -1)
	if err != nil {
		t.Fatal(err)
	}
	x, y := make([]float32, f.Heldout*3), make([]int, f.Heldout)
	if err := set.Heldout(0, f.Heldout, x, y); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < f.Heldout; i++ {
		if x[i*3] <= x[i*3-3] {
			t.Fatalf("held-out row %d is out of order", i)
		}
	}
	part, label := make([]float32, 3), make([]int, 1)
	if err := set.Heldout(7, 1, part, label); err != nil || !slices.Equal(part, x[21:24]) {
		t.Errorf("row 7 alone is %v, %v", part, err)
	}
}

func TestRowsAllocateNothing(t *testing.T) {
	f, raw := wide(t, 1000, 20)
	set, err := Open(bytes.NewReader(raw), -1)
	if err != nil {
		t.Fatal(err)
	}
	idx := rand.New(rand.NewPCG(1, 2)).Perm(f.Samples)[:64]
	x, y := make([]float32, 64*20), make([]int, 64)
	if n := testing.AllocsPerRun(10, func() {
		if err := set.Rows(idx, x, y); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("a read allocates %v times", n)
	}
}

func TestBlockFitsAPart(t *testing.T) {
	for _, features := range []int{1, 64, 784, 60_000} {
		if b := (Facts{Columns: make([]string, features), Samples: math.MaxInt}).block(); int64(b)*rowBytes(features) > domain.MaxPartBytes || int64(b+1)*rowBytes(features) <= domain.MaxPartBytes {
			t.Errorf("%d features make blocks of %d rows", features, b)
		}
	}
	if b := (Facts{Columns: make([]string, 64), Samples: 10}).block(); b != 10 {
		t.Errorf("10 samples make a block of %d", b)
	}
}

// rewritten gives the packed bytes with an edited header.
func rewritten(t testing.TB, raw []byte, edit func(map[string]any)) []byte {
	t.Helper()
	size := int64(binary.LittleEndian.Uint32(raw[len(magic):]))
	var header map[string]any
	if err := json.Unmarshal(raw[prefixSize:prefixSize+size], &header); err != nil {
		t.Fatal(err)
	}
	edit(header)
	body, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	return withHeader(body, raw[prefixSize+size:])
}

func withHeader(body, rows []byte) []byte {
	return slices.Concat([]byte(magic), binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body, rows)
}

func TestOpenRefuses(t *testing.T) {
	f, raw := wide(t, 40, 3)
	size := int64(binary.LittleEndian.Uint32(raw[len(magic):]))
	header := raw[prefixSize : prefixSize+size]
	rows := raw[prefixSize+size:]
	nan := bytes.Clone(raw)
	binary.LittleEndian.PutUint32(nan[prefixSize+size:], math.Float32bits(float32(math.NaN())))
	class := bytes.Clone(raw)
	binary.LittleEndian.PutUint32(class[prefixSize+size+12:], 2)
	for _, c := range []struct {
		name string
		raw  []byte
	}{
		{"empty", nil},
		{"other magic", append([]byte("x"), raw...)},
		{"short prefix", raw[:10]},
		{"short header", raw[:50]},
		{"short rows", raw[:len(raw)-1]},
		{"trailing byte", append(bytes.Clone(raw), 0)},
		{"header length of 4 GiB", append([]byte(magic), 0xff, 0xff, 0xff, 0xff)},
		{"header length zero", withHeader(nil, rows)},
		{"header not JSON", withHeader([]byte("hello"), rows)},
		{"header null", withHeader([]byte("null"), rows)},
		{"trailing header bytes", withHeader(append(bytes.Clone(header), ' '), rows)},
		{"doubled key", withHeader(bytes.Replace(bytes.Clone(header), []byte(`{`), []byte(`{"samples":1,`), 1), rows)},
		{"unknown key", withHeader(bytes.Replace(bytes.Clone(header), []byte(`{`), []byte(`{"x":1,`), 1), rows)},
		{"negative samples", rewritten(t, raw, func(h map[string]any) { h["samples"] = -1 })},
		{"samples beyond all bounds", rewritten(t, raw, func(h map[string]any) { h["samples"] = 1 << 60 })},
		{"one class", rewritten(t, raw, func(h map[string]any) { h["classes"] = []string{"x"} })},
		{"no columns", rewritten(t, raw, func(h map[string]any) { h["columns"] = []string{} })},
		{"deviation zero", rewritten(t, raw, func(h map[string]any) { h["std"] = []float64{1, 0, 1} })},
		{"mean missing", rewritten(t, raw, func(h map[string]any) { h["mean"] = []float64{1, 2} })},
		{"block too large", rewritten(t, raw, func(h map[string]any) { h["block"] = f.Block + 1 })},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Open(bytes.NewReader(c.raw), int64(len(c.raw))); domain.KindOf(err) != domain.KindIntegrity {
				t.Errorf("error %v", err)
			}
		})
	}
	for name, bad := range map[string][]byte{"not finite": nan, "class out of range": class, "short without a size": raw[:len(raw)-1]} {
		set, err := Open(bytes.NewReader(bad), -1)
		if err != nil {
			t.Fatal(err)
		}
		x, y := make([]float32, 40*3), make([]int, 40)
		err = errors.Join(set.Rows(numbers(f.Samples), x[:f.Samples*3], y[:f.Samples]), set.Heldout(0, f.Heldout, x[:f.Heldout*3], y[:f.Heldout]))
		if domain.KindOf(err) != domain.KindIntegrity {
			t.Errorf("%s gave %v", name, err)
		}
	}
}

// Foreign bytes open to a set whose every row can be asked for, or not at all; memory follows the bytes, not the claims.
func FuzzOpen(f *testing.F) {
	_, raw := wide(f, 20, 2)
	f.Add(raw)
	f.Add(raw[:len(raw)/2])
	f.Add([]byte(magic))
	f.Add(withHeader([]byte(`{}`), nil))
	f.Fuzz(func(t *testing.T, raw []byte) {
		set, err := Open(bytes.NewReader(raw), int64(len(raw)))
		if err != nil {
			if domain.KindOf(err) != domain.KindIntegrity || len(err.Error()) > 1000 {
				t.Fatalf("error %v", err)
			}
			return
		}
		facts := set.Facts()
		n := max(facts.Samples, facts.Heldout)
		x, y := make([]float32, n*facts.Features()), make([]int, n)
		errs := errors.Join(set.Rows(numbers(facts.Samples), x[:facts.Samples*facts.Features()], y[:facts.Samples]),
			set.Heldout(0, facts.Heldout, x[:facts.Heldout*facts.Features()], y[:facts.Heldout]))
		if errs != nil && domain.KindOf(errs) != domain.KindIntegrity {
			t.Fatal(errs)
		}
	})
}

func BenchmarkRows(b *testing.B) {
	_, raw := pack(b, digits(b), 0.2, 1)
	set, err := Open(bytes.NewReader(raw), -1)
	if err != nil {
		b.Fatal(err)
	}
	idx := rand.New(rand.NewPCG(1, 2)).Perm(1438)[:32]
	x, y := make([]float32, 32*64), make([]int, 32)
	b.SetBytes(32 * 260)
	b.ReportAllocs()
	for b.Loop() {
		if err := set.Rows(idx, x, y); err != nil {
			b.Fatal(err)
		}
	}
}
