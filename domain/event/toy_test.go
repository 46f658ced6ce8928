package event_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// The toy aggregate: a lamp. Its second fact was written in degrees first and in milliradians since version 3.
type (
	lit struct {
		Watts int `msgpack:"watts"`
	}
	turnedV1 struct {
		Degrees int `msgpack:"deg"`
	}
	turnedV2 struct {
		Degrees float64 `msgpack:"deg"`
	}
	turned struct {
		Milliradians int `msgpack:"mrad"`
	}
)

func (*lit) EventName() string      { return "lamp.lit" }
func (l *lit) Line() string         { return fmt.Sprintf("lamp lit with %d W", l.Watts) }
func (*turnedV1) EventName() string { return "lamp.turned" }
func (*turnedV1) Line() string      { return "lamp turned" }
func (*turnedV2) EventName() string { return "lamp.turned" }
func (*turnedV2) Line() string      { return "lamp turned" }
func (*turned) EventName() string   { return "lamp.turned" }
func (t *turned) Line() string      { return fmt.Sprintf("lamp turned by %d mrad", t.Milliradians) }

func toy() *event.Registry {
	r := event.NewRegistry()
	r.Add("lamp.lit", 1, func() event.Data { return &lit{} })
	r.Add("lamp.turned", 1, func() event.Data { return &turnedV1{} })
	r.Upgrade("lamp.turned", 2, func() event.Data { return &turnedV2{} }, func(old event.Data) event.Data {
		return &turnedV2{Degrees: float64(old.(*turnedV1).Degrees)}
	})
	r.Upgrade("lamp.turned", 3, func() event.Data { return &turned{} }, func(old event.Data) event.Data {
		return &turned{Milliradians: int(old.(*turnedV2).Degrees * 1000 * 3.14159265 / 180)}
	})
	return r
}

func envelope(i int, d event.Data, v int) event.Envelope {
	c := domain.CommandID(fmt.Sprintf("c-%d", i))
	return event.Envelope{ID: event.ID(c, 0), Kind: event.KindRun, Agg: "lamp-1", Time: time.Date(2026, 11, 30, 0, 0, i, 1000, time.UTC),
		Actor: "operator", Cause: c, Data: d, Version: v}
}

func mustEncode(t *testing.T, e event.Envelope) []byte {
	t.Helper()
	b, err := event.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRegistryRefusesAtStart(t *testing.T) {
	add := func(name string, v int, d event.Data) func(*event.Registry) {
		return func(r *event.Registry) { r.Add(name, v, func() event.Data { return d }) }
	}
	up := func(event.Data) event.Data { return &lit{} }
	cases := map[string]struct {
		do  func(*event.Registry)
		why string
	}{
		"twice":              {add("lamp.lit", 1, &lit{}), "registered twice"},
		"one word":           {add("lamp", 1, &lit{}), "not <thing>.<fact>"},
		"three words":        {add("lamp.was.lit", 1, &lit{}), "not <thing>.<fact>"},
		"underscore":         {add("lamp.was_lit", 1, &lit{}), "not <thing>.<fact>"},
		"upper case":         {add("Lamp.lit", 1, &lit{}), "not <thing>.<fact>"},
		"empty word":         {add("lamp.", 1, &lit{}), "not <thing>.<fact>"},
		"too long":           {add("lamp."+strings.Repeat("x", domain.MaxNameLength), 1, &lit{}), "not <thing>.<fact>"},
		"another name":       {add("lamp.broken", 1, &lit{}), "has another name"},
		"begins with two":    {add("lamp.moved", 2, &lit{}), "begins with version 2"},
		"upgrade of nothing": {func(r *event.Registry) { r.Upgrade("lamp.gone", 2, nil, up) }, "before it is added"},
		"version left out": {func(r *event.Registry) { r.Upgrade("lamp.lit", 3, func() event.Data { return &lit{} }, up) },
			"from version 1 to 3"},
		"no way up": {func(r *event.Registry) { r.Upgrade("lamp.lit", 2, func() event.Data { return &lit{} }, nil) }, "no way up"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, tc.why) {
					t.Fatalf("panic %q, want %q", got, tc.why)
				}
			}()
			tc.do(toy())
		})
	}
}

func TestRegistryLists(t *testing.T) {
	r := toy()
	if got := strings.Join(r.Names(), " "); got != "lamp.lit lamp.turned" {
		t.Errorf("names %q", got)
	}
	if r.Latest("lamp.turned") != 3 || r.Latest("lamp.lit") != 1 || r.Latest("lamp.gone") != 0 {
		t.Error("latest versions are wrong")
	}
	for _, v := range []int{0, 4, -1} {
		if _, err := r.New("lamp.turned", v); domain.KindOf(err) != domain.KindInvalid || domain.NextOf(err) == "" {
			t.Errorf("version %d: %v", v, err)
		}
	}
}

func TestUpcastingGoesStepByStep(t *testing.T) {
	r := toy()
	for v, d := range map[int]event.Data{1: &turnedV1{180}, 2: &turnedV2{180}, 3: &turned{3141}} {
		e, err := event.Decode(r, 9, mustEncode(t, envelope(1, d, v)))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := e.Data.(*turned); !ok || *got != (turned{3141}) || e.Version != 3 || e.Seq != 9 {
			t.Errorf("version %d became %#v version %d", v, e.Data, e.Version)
		}
	}
}

func TestSubjectTellsTheName(t *testing.T) {
	e := envelope(1, &lit{}, 1)
	if got := e.Subject(); got != "tt.ev.run.lamp-1.lamp_lit" {
		t.Errorf("subject %s", got)
	}
}

func TestEventID(t *testing.T) {
	if c, i, ok := event.SplitID(event.ID("c-1", 12)); c != "c-1" || i != 12 || !ok {
		t.Errorf("got %s %d %v", c, i, ok)
	}
	for _, bad := range []string{"", "c-1", "c-1.", "c-1.-1", "c-1.01", "c-1.1.1", ".1", "C.1"} {
		if _, _, ok := event.SplitID(bad); ok {
			t.Errorf("%q passes as an event id", bad)
		}
	}
}
