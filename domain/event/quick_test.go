package event

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain"
	"tensorturn/domain/pack"
)

// lamp is data of any size.
type lamp struct {
	Watts int    `msgpack:"w"`
	Note  string `msgpack:"n"`
}

func (*lamp) EventName() string { return "lamp.lit" }
func (*lamp) Line() string      { return "lit" }

// records are encoded envelopes at the edges of what the quick way reads.
func records(t testing.TB) [][]byte {
	t.Helper()
	var out [][]byte
	for i, e := range []Envelope{
		{ID: "c.0", Cause: "c", Time: time.UnixMicro(0)},
		{ID: "c-1.7", Cause: "c-1", Time: time.UnixMicro(1_800_000_000_123_456), Corr: "story", Prev: Digest(nil)},
		{ID: "c-2.0", Cause: "c-2", Time: time.UnixMicro(127), Prev: Digest(nil), Data: &lamp{1 << 40, string(bytes.Repeat([]byte("x"), 70_000))}},
		{ID: "c-3.0", Cause: "c-3", Time: time.UnixMicro(1 << 32), Corr: string(bytes.Repeat([]byte("r"), 40)), Version: 200},
	} {
		e.Kind, e.Agg, e.Actor, e.Version = KindRun, "r-1", "machine:m-01k0000000000000000000000000", max(e.Version, 1)
		if e.Data == nil {
			e.Data = &lamp{i, "short"}
		}
		b, err := Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// TestQuickReadsWhatPackReads: the same record, for all that Encode writes.
func TestQuickReadsWhatPackReads(t *testing.T) {
	for i, b := range records(t) {
		got, ok := quick(b)
		if !ok {
			t.Errorf("record %d is not read the quick way", i)
			continue
		}
		var want record
		if err := pack.Decode(b, pack.EventLimits(), &want); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("record %d:\n%s", i, d)
		}
	}
}

// TestOtherFormsAreReadTheSlowWay: a time before 1970 is no form that quick reads, and no damage.
func TestOtherFormsAreReadTheSlowWay(t *testing.T) {
	e := Envelope{ID: "c.0", Cause: "c", Kind: KindPool, Agg: "pool", Actor: "hub", Version: 1, Time: time.UnixMicro(-5).UTC(), Data: &lamp{}}
	b, err := Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := quick(b); ok {
		t.Error("quick read a negative time")
	}
	r := NewRegistry()
	r.Add("lamp.lit", 1, func() Data { return &lamp{} })
	got, err := Decode(r, 0, b)
	if err != nil || !got.Time.Equal(e.Time) || got.Cause != domain.CommandID("c") {
		t.Errorf("%+v %v", got, err)
	}
}

// FuzzQuick: what the quick way reads, pack reads in the same way; it may leave anything to pack, but misread nothing.
func FuzzQuick(f *testing.F) {
	for _, b := range records(f) {
		f.Add(b)
	}
	r := NewRegistry()
	r.Add("lamp.lit", 1, func() Data { return &lamp{} })
	f.Fuzz(func(t *testing.T, b []byte) {
		b = Reseal(b)
		got, ok := quick(b)
		if !ok {
			return
		}
		if _, err := Decode(r, 1, b); err != nil {
			return // refused in the end: its data is not one value, or a field is wrong
		}
		var want record
		if err := pack.Decode(b, pack.EventLimits(), &want); err != nil {
			t.Fatalf("the quick way reads what pack refuses: %v", err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	})
}
