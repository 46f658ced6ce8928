package pack_test

import (
	"bytes"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vmihailenco/msgpack/v5"

	"tensorturn/domain"
	"tensorturn/domain/pack"
)

type inner struct {
	Name string  `msgpack:"name"`
	N    int64   `msgpack:"n"`
	U    uint64  `msgpack:"u"`
	F    float64 `msgpack:"f"`
}

type sample struct {
	Small  uint8             `msgpack:"small"`
	Signed int8              `msgpack:"signed"`
	F32    float32           `msgpack:"f32"`
	Flag   bool              `msgpack:"flag"`
	Bytes  []byte            `msgpack:"bytes"`
	Sum    [4]byte           `msgpack:"sum"`
	Pair   [2]int            `msgpack:"pair"`
	List   []inner           `msgpack:"list"`
	Ptr    *inner            `msgpack:"ptr"`
	Labels map[string]string `msgpack:"labels"`
	Time   time.Time         `msgpack:"time"`
	Maybe  *float64          `msgpack:"maybe"`
	Omit   string            `msgpack:"omit,omitempty"`
	Hidden int               `msgpack:"-"`
	Any    map[string]any    `msgpack:"any"`
	Self   *sample           `msgpack:"self"`
}

func limits() pack.Limits {
	return pack.Limits{Bytes: 1 << 16, Depth: 8, Elements: 1 << 10, Memory: 1 << 16}
}

func full() sample {
	f := math.Pi
	return sample{Small: 255, Signed: -128, F32: 1.5, Flag: true, Bytes: []byte{1, 2}, Sum: [4]byte{1, 2, 3, 4},
		Pair: [2]int{-1, 1 << 40}, List: []inner{{"a", math.MinInt64, math.MaxUint64, -0.5}, {"b", math.MaxInt64, 0, math.Inf(1)}},
		Ptr: &inner{Name: "p"}, Labels: map[string]string{"z": "1", "a": "2", "m": "3"},
		Time: time.Date(2026, 11, 30, 1, 2, 3, 4000, time.UTC), Maybe: &f,
		Any: map[string]any{"k": "v", "b": "c"}, Self: &sample{Sum: [4]byte{9}}}
}

func TestRoundTrip(t *testing.T) {
	in := full()
	b, err := pack.Encode(in)
	if err != nil {
		t.Fatal(err)
	}
	var out sample
	if err := pack.Decode(b, limits(), &out); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(in, out); d != "" {
		t.Fatal(d)
	}
	for range 20 { // map order would show
		again, err := pack.Encode(out)
		if err != nil || !bytes.Equal(b, again) {
			t.Fatalf("encoding differs: %x, %x, %v", b, again, err)
		}
	}
}

// hostile lists bytes that no one may decode, each with a word of the refusal.
func hostile() map[string]struct{ in, why string } {
	return map[string]struct{ in, why string }{
		"array of 4 G":            {"\xdd\xff\xff\xff\xff", "announced"},
		"bytes of 4 G":            {"\xc6\xff\xff\xff\xff", "announced"},
		"text of 4 G":             {"\xdb\xff\xff\xff\xff", "announced"},
		"map of 4 G":              {"\xdf\xff\xff\xff\xff", "announced"},
		"map of 64 K":             {"\xde\xff\xff", "announced"},
		"map with half an entry":  {"\x81\xa1a", "announced"},
		"ext of 4 G":              {"\xc9\xff\xff\xff\xff\xff", "code 0xc9"},
		"fixext of another type":  {"\xd6\x05\x00\x00\x00\x00", "extension type 5"},
		"timestamp of 1 byte":     {"\xc7\x01\xff\x00", "extension type -1 of 1"},
		"timestamp cut":           {"\xd7\xff\x00", "announced"},
		"timestamp nanoseconds":   {"\xd7\xff\xff\xff\xff\xff\xff\xff\xff\xff", "nanoseconds"},
		"nested too deep":         {strings.Repeat("\x91", 1<<15) + "\xc0", "nested deeper than 8"},
		"reserved code":           {"\xc1", "code 0xc1"},
		"trailing bytes":          {"\xc0\xc0", "1 bytes behind"},
		"nothing":                 {"", "announced"},
		"cut integer":             {"\xcd\x01", "announced"},
		"key twice":               {"\x82\xa1a\x01\xa1a\x02", `key "a" twice`},
		"key twice, other length": {"\x82\xa1a\x01\xd9\x01a\x02", `key "a" twice`},
		"key no text":             {"\x81\x01\x01", "key begins with code 0x1"},
		"key nil":                 {"\x81\xc0\x01", "key begins with code 0xc0"},
		"too many values":         {"\xdc\x04\x00" + strings.Repeat("\xc0", 1024), "more than 1024 values"},
		"too long":                {"\xc5\xff\xff" + strings.Repeat("x", 1<<16), "more than 65536"},
		"key twice among many":    {"\xde\x00\x12" + manyKeys(17) + "\xa1a\x01", `key "a" twice`},
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("\xa1" + string(rune('a'+i)) + "\x01")
	}
	return b.String()
}

func TestHostileBytes(t *testing.T) {
	for name, tc := range hostile() {
		t.Run(name, func(t *testing.T) {
			err := pack.Check([]byte(tc.in), limits())
			if domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), tc.why) {
				t.Fatalf("got %v, want invalid with %q", err, tc.why)
			}
			var v any
			if err := pack.Decode([]byte(tc.in), limits(), &v); domain.KindOf(err) != domain.KindInvalid {
				t.Fatalf("decode into any: %v", err)
			}
		})
	}
}

func TestLimitsAreExact(t *testing.T) {
	list := append([]byte{0xdc, 0x03, 0xff}, bytes.Repeat([]byte{0xc0}, 1023)...) // the list and its values: 1024
	if err := pack.Check(list, limits()); err != nil {
		t.Fatalf("as many values as allowed: %v", err)
	}
	if err := pack.Check([]byte(strings.Repeat("\x91", 8)+"\xc0"), limits()); err != nil {
		t.Fatalf("as deep as allowed: %v", err)
	}
	if err := pack.Check([]byte(strings.Repeat("\x91", 9)+"\xc0"), limits()); err == nil {
		t.Fatal("one deeper than allowed passes")
	}
	exact := append([]byte{0xc5, 0xff, 0xfd}, make([]byte, 1<<16-3)...)
	if err := pack.Check(exact, limits()); err != nil {
		t.Fatalf("as long as allowed: %v", err)
	}
}

func TestTypedRefusals(t *testing.T) {
	cases := map[string]struct {
		in  any
		why string
	}{
		"300 into uint8":          {map[string]any{"small": uint16(300)}, "field small: 300 is no uint8"},
		"-1 into uint8":           {map[string]any{"small": int8(-1)}, "field small: -1 is no uint8"},
		"128 into int8":           {map[string]any{"signed": uint8(128)}, "field signed: 128 is no int8"},
		"-129 into int8":          {map[string]any{"signed": int16(-129)}, "field signed: -129 is no int8"},
		"2^63+5 into int64":       {map[string]any{"ptr": map[string]any{"n": uint64(1<<63 + 5)}}, "field ptr.n: 9223372036854775813 is no int64"},
		"-1 into uint64 in list":  {map[string]any{"list": []any{map[string]any{}, map[string]any{"u": -1}}}, "field list[1].u: -1 is no uint64"},
		"2^63 into float64":       {map[string]any{"ptr": map[string]any{"f": uint64(1 << 63)}}, "is no float64"},
		"float64 into float32":    {map[string]any{"f32": 1.5}, "a 64-bit float is no float32"},
		"float into integer":      {map[string]any{"small": float32(1)}, "a float is no uint8"},
		"text into bytes":         {map[string]any{"bytes": "x"}, "text is no []uint8"},
		"bytes into text":         {map[string]any{"omit": []byte("x")}, "bytes are no string"},
		"list into bytes":         {map[string]any{"bytes": []any{1, 2}}, "a list is no []uint8"},
		"short bytes into array":  {map[string]any{"sum": []byte{1}}, "1 bytes are no [4]uint8"},
		"three into pair":         {map[string]any{"pair": []any{1, 2, 3}}, "3 values are no [2]int"},
		"list into struct":        {map[string]any{"ptr": []any{"p", 1, 2, 3}}, "a list is no pack_test.inner"},
		"map into list":           {map[string]any{"list": map[string]any{}}, "a map is no []pack_test.inner"},
		"text into time":          {map[string]any{"time": "2026-11-30T00:00:00Z"}, "text is no time.Time"},
		"nil into time":           {map[string]any{"time": nil}, "nil is no time.Time"},
		"time into integer":       {map[string]any{"small": time.Unix(0, 0)}, "a timestamp is no uint8"},
		"boolean into integer":    {map[string]any{"small": true}, "a boolean is no uint8"},
		"number into label":       {map[string]any{"labels": map[string]any{"a": 1}}, "field labels.a: 1 is no string"},
		"more memory than bounds": {map[string]any{"list": make([]any, 1000)}, "more than 65536 bytes of memory"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b, err := msgpack.Marshal(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			lim := limits()
			if name == "more memory than bounds" {
				lim.Elements = 1 << 20
				b, _ = msgpack.Marshal(map[string]any{"list": make([]any, 2000)})
			}
			err = pack.Decode(b, lim, new(sample))
			if domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), tc.why) {
				t.Fatalf("got %v, want invalid with %q", err, tc.why)
			}
		})
	}
}

// TestTheLibraryAloneWouldNotRefuse shows why the walk exists: without it these bytes become wrong values in silence.
func TestTheLibraryAloneWouldNotRefuse(t *testing.T) {
	var s sample
	b, _ := msgpack.Marshal(map[string]any{"small": uint16(300)})
	if err := msgpack.Unmarshal(b, &s); err != nil || s.Small != 44 {
		t.Fatalf("the library has changed: %d, %v; the walk may be thinner now", s.Small, err)
	}
}

func TestUnknownFieldsAreSkipped(t *testing.T) {
	b, _ := msgpack.Marshal(map[string]any{"small": 7, "newer": map[string]any{"deep": []any{1, "two", time.Unix(1, 0)}}})
	var s sample
	if err := pack.Decode(b, limits(), &s); err != nil || s.Small != 7 {
		t.Fatalf("got %d, %v", s.Small, err)
	}
}

func TestTimesComeBackInUTC(t *testing.T) {
	at := time.Date(2026, 11, 30, 1, 2, 3, 0, time.FixedZone("there", 3600))
	type stamp struct {
		At   time.Time   `msgpack:"at"`
		Ptr  *time.Time  `msgpack:"ptr"`
		List []time.Time `msgpack:"list"`
		None *stampless  `msgpack:"none"`
	}
	b, err := pack.Encode(stamp{At: at, Ptr: &at, List: []time.Time{at}})
	if err != nil {
		t.Fatal(err)
	}
	var s stamp
	if err := pack.Decode(b, limits(), &s); err != nil {
		t.Fatal(err)
	}
	for _, got := range []time.Time{s.At, *s.Ptr, s.List[0]} {
		if got.Location() != time.UTC || !got.Equal(at) {
			t.Errorf("got %v, want %v in UTC", got, at)
		}
	}
}

type stampless struct{ N int }

type selfMade struct{}

func (selfMade) MarshalText() ([]byte, error) { return nil, nil }

func TestTypesThatAreNotCanonicalAreRefused(t *testing.T) {
	type embedded struct{ inner }
	for name, v := range map[string]any{
		"named map key": map[domain.SlotID]string{},
		"map of ints":   map[string]int{},
		"embedded":      embedded{},
		"own encoding":  selfMade{},
		"channel":       make(chan int),
		"interface":     struct{ E error }{},
	} {
		if _, err := pack.Encode(v); domain.KindOf(err) != domain.KindInternal {
			t.Errorf("%s: got %v, want internal", name, err)
		}
	}
}

// TestMemoryIsBounded feeds the worst bytes for their size and compares what is allocated with the limit.
func TestMemoryIsBounded(t *testing.T) {
	lim := pack.MessageLimits()
	worst := map[string][]byte{
		"list of big values": append([]byte{0x81, 0xa4, 'l', 'i', 's', 't', 0xdd, 0, 0x03, 0xf0, 0}, bytes.Repeat([]byte{0xc0}, 0x3f000)...),
		"any of small lists": append([]byte{0x81, 0xa3, 'a', 'n', 'y', 0x81, 0xa1, 'a', 0xdd, 0, 0x03, 0xf0, 0}, bytes.Repeat([]byte{0x90}, 0x3f000)...),
	}
	for name, b := range worst {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := pack.Decode(b, lim, new(sample))
		runtime.ReadMemStats(&after)
		got := after.TotalAlloc - before.TotalAlloc
		if got > 3*uint64(lim.Memory) {
			t.Errorf("%s: %d MiB allocated, error %v", name, got>>20, err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	v := full()
	in, _ := pack.Encode(v)
	b.ReportAllocs()
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			_ = pack.Check(in, limits())
		}
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			_ = pack.Decode(in, limits(), new(sample))
		}
	})
	b.Run("library", func(b *testing.B) {
		for b.Loop() {
			_ = msgpack.Unmarshal(in, new(sample))
		}
	})
}
