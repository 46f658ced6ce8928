package eventtest

import (
	"strings"
	"testing"

	"tensorturn/domain/event"
)

// Three programs that know the same event: as it was first, with a field added as it must be, and as it must not be.
type (
	first struct{ A int }
	added struct {
		A int
		B string `msgpack:",omitempty"`
	}
	careless struct {
		A int
		B string
	}
	retyped struct{ A string }
	wordy   struct{ A int }
)

func (*first) EventName() string    { return "lamp.lit" }
func (*first) Line() string         { return "lit" }
func (*added) EventName() string    { return "lamp.lit" }
func (*added) Line() string         { return "lit" }
func (*careless) EventName() string { return "lamp.lit" }
func (*careless) Line() string      { return "lit" }
func (*retyped) EventName() string  { return "lamp.lit" }
func (*retyped) Line() string       { return "lit" }
func (*wordy) EventName() string    { return "lamp.lit" }
func (*wordy) Line() string         { return "lit.\n" }

func TestReadable(t *testing.T) {
	sample, err := event.Encode(Sample(&first{A: 3}, 1))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		d   event.Data
		why string
	}{
		"unchanged":            {&first{}, ""},
		"added with omitempty": {&added{}, ""},
		"added without":        {&careless{}, "a new field needs omitempty"},
		"changed type":         {&retyped{}, "can no longer be read"},
		"line that is no line": {&wordy{}, "one line without a full stop"},
	} {
		t.Run(name, func(t *testing.T) {
			r := event.NewRegistry()
			r.Add("lamp.lit", 1, func() event.Data { return tc.d })
			err := readable(r, sample, "lamp.lit", 1)
			if tc.why == "" && err != nil || tc.why != "" && (err == nil || !strings.Contains(err.Error(), tc.why)) {
				t.Fatalf("got %v, want %q", err, tc.why)
			}
		})
	}
}
