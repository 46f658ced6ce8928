package feed_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tensorturn/projections/feed"
)

// TestPublished holds the schemas and the AsyncAPI document against the committed ones. A change that breaks a reader is
// refused even when asked to write.
func TestPublished(t *testing.T) {
	r := registry()
	now := feed.Schemas(r)
	now["envelope"] = feed.EnvelopeSchema()
	for _, why := range feed.Breaking(committed(t), now) {
		t.Errorf("breaks readers: %s; a changed meaning is a new event name, a changed form a new version", why)
	}
	if t.Failed() {
		return
	}
	for name, s := range now {
		file(t, filepath.Join("published", name+".schema.json"), indented(t, s))
	}
	file(t, filepath.Join("published", "asyncapi.json"), indented(t, feed.AsyncAPI(r)))
}

func indented(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(b, '\n')
}

// committed reads what is published.
func committed(t *testing.T) map[string]feed.Schema {
	t.Helper()
	out := map[string]feed.Schema{}
	files, _ := filepath.Glob(filepath.Join("published", "*.schema.json"))
	for _, f := range files {
		out[strings.TrimSuffix(filepath.Base(f), ".schema.json")] = parse(t, must(os.ReadFile(f))(t))
	}
	return out
}

func must(b []byte, err error) func(*testing.T) []byte {
	return func(t *testing.T) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

func parse(t *testing.T, b []byte) feed.Schema {
	t.Helper()
	var s feed.Schema
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestBreakingIsSeen changes one schema in every way that hurts a reader, and in some that do not.
func TestBreakingIsSeen(t *testing.T) {
	const old = `{"type":"object","properties":{"a":{"type":"integer"},"l":{"type":"array","items":{"type":"object","properties":{"x":{"type":"string"}},"required":["x"]}},
		"p":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["a"]}`
	for name, tc := range map[string]struct{ from, to, why string }{
		"same":              {"", "", ""},
		"field added":       {`"a":{"type":"integer"},`, `"a":{"type":"integer"},"b":{"type":"string"},`, ""},
		"field required":    {`"required":["a"]}`, `"required":["a","l"]}`, ""},
		"field gone":        {`"a":{"type":"integer"},`, ``, "T.a is gone"},
		"type changed":      {`"integer"`, `"string"`, "T.a: type was integer and is string"},
		"may be missing":    {`"required":["a"]}`, `"required":[]}`, "may be missing"},
		"inner gone":        {`"x":{"type":"string"}`, `"y":{"type":"string"}`, "T.l[].x is gone"},
		"inner may be gone": {`"required":["x"]`, `"required":[]`, "T.l[].x was always there"},
		"never null":        {`,{"type":"null"}`, ``, "other alternatives"},
		"pattern":           {`{"type":"string"},{"type":"null"}`, `{"type":"string","pattern":"^a$"},{"type":"null"}`, "pattern was"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.from != "" && !strings.Contains(old, tc.from) {
				t.Fatal("the change changes nothing")
			}
			got := feed.Breaking(map[string]feed.Schema{"T": parse(t, []byte(old))}, map[string]feed.Schema{"T": parse(t, []byte(strings.Replace(old, tc.from, tc.to, 1)))})
			if tc.why == "" && len(got) > 0 || tc.why != "" && !strings.Contains(strings.Join(got, "\n"), tc.why) {
				t.Errorf("got %q, want %q", got, tc.why)
			}
		})
	}
	if got := feed.Breaking(map[string]feed.Schema{"T": {}}, nil); len(got) != 1 {
		t.Errorf("a type that is gone: %q", got)
	}
}
