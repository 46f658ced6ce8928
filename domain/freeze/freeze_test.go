package freeze_test

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/freeze"
)

// everything has one field of each kind there is.
type everything struct {
	Bool     bool
	Int      int
	Small    int8
	Uint     uint64
	Byte     uint8
	Float    float64
	Single   float32
	Text     string
	ID       domain.SlotID
	Time     time.Time
	List     []string
	Nil      []int
	Empty    []int
	Array    [2]int
	Map      map[domain.SlotID]*leaf
	NilMap   map[string]int
	EmptyMap map[string]int
	Set      map[key]struct{}
	Pointer  *leaf
	Nothing  *leaf
	Itself   *everything
	Lists    [][]leaf
	hidden   hidden
	Hidden   map[string]hidden
}

type leaf struct {
	A int
	B string
}

type key struct {
	run   string
	round int
}

type hidden struct {
	n    int
	list []leaf
	deep map[key]hidden
	at   time.Time
}

func example() *everything {
	return &everything{
		Bool: true, Int: math.MinInt64, Small: -128, Uint: math.MaxUint64, Byte: 255, Float: math.Copysign(0, -1), Single: 0.1, Text: strings.Repeat("long ", 50),
		ID: "m-1/0", Time: time.UnixMicro(1_700_000_000_123_456).UTC(), List: []string{"", "a", "m-1/0", "a"}, Empty: []int{}, Array: [2]int{-1, 1},
		Map: map[domain.SlotID]*leaf{"m-2/0": {1, "x"}, "m-1/0": nil, "m-1/1": {-7, "m-1/0"}}, EmptyMap: map[string]int{},
		Set: map[key]struct{}{{"r", 2}: {}, {"r", 1}: {}, {"a", 9}: {}}, Pointer: &leaf{3, "a"}, Itself: &everything{Lists: [][]leaf{nil, {}, {{1, "a"}}}},
		hidden: hidden{n: 7, list: []leaf{{1, "x"}}}, Hidden: map[string]hidden{"a": {n: -1, deep: map[key]hidden{{"r", 3}: {at: time.Unix(9, 0).UTC()}}}},
	}
}

const plenty = 1 << 20

func part(v any) freeze.Part { return freeze.Part{Name: "test", Values: []any{v}} }

func freezeOf(t testing.TB, v any) []byte {
	t.Helper()
	b, err := freeze.Freeze(part(v))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEverythingComesBack(t *testing.T) {
	want := example()
	b := freezeOf(t, want)
	for range 20 { // maps are walked in another order each time
		if again := freezeOf(t, example()); !bytes.Equal(b, again) {
			t.Fatal("the same state gave other bytes")
		}
	}
	var got everything
	set, err := freeze.Thaw(part(&got), b, plenty)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, everything{}) {
		t.Fatal("thawing set the variable before it was told to")
	}
	set()
	if !reflect.DeepEqual(&got, want) { // nil and empty are not the same
		t.Fatalf("%+v\n%+v", want, &got)
	}
	if math.Signbit(got.Float) != true {
		t.Error("the sign of zero is lost")
	}
}

func TestRestoredIsCalledBehindTheValues(t *testing.T) {
	from, to := map[string]int{"a": 1}, map[string]int(nil)
	var seen int
	p := freeze.Part{Name: "p", Values: []any{&to}, Restored: func() { seen = to["a"] }}
	set, err := freeze.Thaw(p, freezeOf(t, &from), plenty)
	if err != nil {
		t.Fatal(err)
	}
	set()
	if seen != 1 {
		t.Error("Restored did not see the values")
	}
}

// TestSharedStringsAreShared: a million chunks of one slot must not hold a million strings.
func TestSharedStringsAreShared(t *testing.T) {
	list := []domain.SlotID{}
	for range 1000 {
		list = append(list, "m-01k0000000000000000000000/0")
	}
	if n := len(freezeOf(t, &list)); n > 1100 {
		t.Errorf("%d bytes for a thousand times the same id", n)
	}
}

func TestEveryCutAndTrailingByteIsRefused(t *testing.T) {
	b := freezeOf(t, example())
	for i := range b {
		if _, err := freeze.Thaw(part(&everything{}), b[:i], plenty); domain.KindOf(err) != domain.KindIntegrity {
			t.Fatalf("%d of %d bytes: %v", i, len(b), err)
		}
	}
	if _, err := freeze.Thaw(part(&everything{}), append(bytes.Clone(b), 0), plenty); domain.KindOf(err) != domain.KindIntegrity {
		t.Errorf("a byte too many: %v", err)
	}
}

func TestHostileBytesAreRefused(t *testing.T) {
	lists, table, number, text := []int64{}, map[string]int{}, int8(0), ""
	var chain *chain
	for name, c := range map[string]struct {
		into any
		b    []byte
		why  string
	}{
		"a list of 2^60":            {&lists, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, "end in the middle"},
		"a number that is padded":   {&lists, []byte{0x81, 0x00}, "end in the middle"},
		"a number that is too long": {&lists, bytes.Repeat([]byte{0xff}, 11), "end in the middle"},
		"keys out of order":         {&table, []byte{3, 3, 'b', 2, 3, 'a', 2}, "out of order"},
		"a key twice":               {&table, []byte{3, 3, 'a', 2, 3, 'a', 2}, "out of order"},
		"a number out of range":     {&number, []byte{0x80, 0x02}, "is no int8"},
		"a string never seen":       {&text, []byte{2}, "not seen before"},
		"a pointer of 2":            {&chain, []byte{2}, "neither"},
		"nested without end":        {&chain, bytes.Repeat([]byte{1}, 1000), "nested deeper"},
	} {
		if _, err := freeze.Thaw(part(c.into), c.b, plenty); domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type chain struct{ Next *chain }

// TestMemoryIsCounted at the limit: one byte less is refused.
func TestMemoryIsCounted(t *testing.T) {
	list := make([]int64, 1000) // 1,002 bytes that become 8,000
	b := freezeOf(t, &list)
	var got []int64
	if _, err := freeze.Thaw(part(&got), b, 8000); err != nil {
		t.Fatal(err)
	}
	if _, err := freeze.Thaw(part(&got), b, 7999); domain.KindOf(err) != domain.KindIntegrity || !strings.Contains(err.Error(), "memory") {
		t.Fatalf("8,000 bytes within 7,999: %v", err)
	}
}

func TestTypesThatCannotBeFrozen(t *testing.T) {
	for why, v := range map[string]any{
		"cannot be frozen": &struct{ A any }{}, "not ordered": &map[float64]int{}, "without size": &[]struct{}{},
	} {
		if _, err := freeze.Freeze(part(v)); domain.KindOf(err) != domain.KindInternal || !strings.Contains(err.Error(), why) {
			t.Errorf("%T: %v", v, err)
		}
		if _, err := freeze.Thaw(part(v), nil, plenty); domain.KindOf(err) != domain.KindInternal {
			t.Errorf("%T thawed: %v", v, err)
		}
	}
}

// TestFingerprintSeesEveryChange that would make old bytes mean something else.
func TestFingerprintSeesEveryChange(t *testing.T) {
	base := []freeze.Part{{Name: "p", Values: []any{&leaf{}, &map[string]leaf{}}}}
	same := freeze.Fingerprint(base, "v1")
	if again := freeze.Fingerprint([]freeze.Part{{Name: "p", Values: []any{&leaf{1, "b"}, &map[string]leaf{"a": {}}}}}, "v1"); again != same {
		t.Error("the values count, and they must not")
	}
	for name, p := range map[string][]freeze.Part{
		"another name":     {{Name: "q", Values: base[0].Values}},
		"another order":    {{Name: "p", Values: []any{&map[string]leaf{}, &leaf{}}}},
		"a part more":      {base[0], {Name: "q"}},
		"a field more":     {{Name: "p", Values: []any{&struct{ A, C int }{}, &map[string]leaf{}}}},
		"a deeper type":    {{Name: "p", Values: []any{&leaf{}, &map[string]*leaf{}}}},
		"another key type": {{Name: "p", Values: []any{&leaf{}, &map[domain.SlotID]leaf{}}}},
	} {
		if freeze.Fingerprint(p, "v1") == same {
			t.Errorf("%s: the same fingerprint", name)
		}
	}
	if freeze.Fingerprint(base, "v2") == same || freeze.Fingerprint(base) == same {
		t.Error("another program, the same fingerprint")
	}
	if a, b := freeze.Shape(reflect.TypeFor[struct{ A int32 }]()), freeze.Shape(reflect.TypeFor[struct{ A int64 }]()); a == b {
		t.Error("int32 and int64 have one shape")
	}
}

// FuzzThaw: no bytes end the process, take more than the limit, or are read and then written otherwise.
func FuzzThaw(f *testing.F) {
	f.Add(freezeOf(f, example()))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		var got everything
		set, err := freeze.Thaw(part(&got), b, plenty)
		if err != nil {
			return
		}
		set()
		var again everything
		second := freezeOf(t, &got) // strings may have been written without sharing; the state is what counts
		set, err = freeze.Thaw(part(&again), second, 4*plenty)
		if err != nil {
			t.Fatal(err)
		}
		set()
		if a, b := fmt.Sprintf("%#v", got.Map), fmt.Sprintf("%#v", again.Map); len(a) != len(b) || !bytes.Equal(second, freezeOf(t, &again)) {
			t.Fatal("read, written and read, it is another state")
		}
	})
}
