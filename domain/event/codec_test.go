package event_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

func TestEnvelopeRoundTrip(t *testing.T) {
	in := envelope(1, &lit{Watts: 60}, 1)
	in.Corr, in.Prev = "evening", event.Digest([]byte("x"))
	out, err := event.Decode(toy(), 7, mustEncode(t, in))
	if err != nil {
		t.Fatal(err)
	}
	in.Seq = 7
	if d := cmp.Diff(in, out); d != "" {
		t.Fatal(d)
	}
	if out.Time.Location() != time.UTC {
		t.Errorf("time in %v", out.Time.Location())
	}
}

type heavy struct {
	Text string `msgpack:"text"`
}

func (*heavy) EventName() string { return "lamp.heavy" }
func (*heavy) Line() string      { return "heavy" }

type byValue struct{}

func (byValue) EventName() string { return "lamp.value" }
func (byValue) Line() string      { return "value" }

func TestEncodeRefuses(t *testing.T) {
	cases := map[string]struct {
		change func(*event.Envelope)
		why    string
	}{
		"no data":            {func(e *event.Envelope) { e.Data = nil }, "no data"},
		"data by value":      {func(e *event.Envelope) { e.Data = byValue{} }, "not a pointer"},
		"id of another":      {func(e *event.Envelope) { e.ID = "c-2.0" }, "is not one of command"},
		"id without index":   {func(e *event.Envelope) { e.ID = "c-1" }, "is not one of command"},
		"unknown kind":       {func(e *event.Envelope) { e.Kind = "lamp" }, "is no kind"},
		"wildcard aggregate": {func(e *event.Envelope) { e.Agg = "*" }, "is no aggregate id"},
		"no actor":           {func(e *event.Envelope) { e.Actor = "" }, "is no actor"},
		"long correlation":   {func(e *event.Envelope) { e.Corr = strings.Repeat("x", domain.MaxNameLength+1) }, "longer than"},
		"no version":         {func(e *event.Envelope) { e.Version = 0 }, "no version"},
		"short link":         {func(e *event.Envelope) { e.Prev = "abcd" }, "not a SHA-256"},
		"too much data":      {func(e *event.Envelope) { e.Data = &heavy{strings.Repeat("x", domain.MaxEventBytes)} }, "more than"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := envelope(1, &lit{}, 1)
			tc.change(&e)
			_, err := event.Encode(e)
			if domain.KindOf(err) != domain.KindInvalid || !strings.Contains(err.Error(), tc.why) {
				t.Fatalf("got %v, want invalid with %q", err, tc.why)
			}
		})
	}
}

func TestLargestDataPasses(t *testing.T) {
	r := event.NewRegistry()
	r.Add("lamp.heavy", 1, func() event.Data { return &heavy{} })
	e := envelope(1, &heavy{strings.Repeat("x", domain.MaxEventBytes-11)}, 1) // 1 for the map, 5 for the key, 5 for the text
	b := mustEncode(t, e)
	if _, err := event.Decode(r, 1, b); err != nil {
		t.Fatal(err)
	}
}

// FuzzDecode demands that foreign bytes never become an envelope that cannot be written again.
func FuzzDecode(f *testing.F) {
	r := toy()
	b, err := event.Encode(envelope(1, &lit{60}, 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("\xdd\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, in := range [][]byte{b, event.Reseal(b)} { // without a right checksum hardly anything gets past the door
			e, err := event.Decode(r, 1, in)
			if err != nil {
				continue
			}
			if _, err := event.Encode(e); err != nil {
				t.Fatalf("read but cannot be written: %v", err)
			}
		}
	})
}
