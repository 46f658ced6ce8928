// Package outsiders tests what other systems do with a hub: follow its events with stock clients that know nothing of this
// project. make test-outsiders gives it Python with nats-py and the nats tool; what needs them is skipped elsewhere.
package outsiders

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"tensorturn/test/kit"
)

var (
	binary string // what every test runs; TestMain builds it once
	python = flag.String("python", "", "a Python with nats-py[aiohttp,nkeys]")
	tool   = flag.String("nats", "", "the nats tool")
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m, &binary)) }

const lease = 3 * time.Second

// spec is a small run on the digits.
func spec(t *testing.T, epochs int) string {
	t.Helper()
	data, err := filepath.Abs("../../cmd/tensorturn/demo/digits.csv.gz")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("name: small\ndata: {path: %s}\nmodel: {kind: mlp, hidden: [32]}\nbatch: 32\nepochs: %d\nchunk: 128\nround: {chunks: 24}\n", data, epochs)
}

// observer is the folder of an observer's credential.
type observer struct {
	ID, Dir, URL, Stream, Consumer, Subject string
	APIPrefix                               string `json:"api_prefix"`
}

func newObserver(t *testing.T, p *kit.Pool, flags ...string) observer {
	t.Helper()
	var o observer
	p.JSON(&o, append([]string{"credential", "create", "--role", "observer", "--out", filepath.Join(t.TempDir(), "observer")}, flags...)...)
	return o
}

// cloudEvent is an event as an outsider reads it.
type cloudEvent struct {
	ID, Source, Subject, Type, Sequence, Summary string
	Data                                         json.RawMessage
	place                                        uint64 // in the feed, where the client tells
}

// truth is what the command line says has happened, by id.
func truth(t *testing.T, p *kit.Pool, flags ...string) []cloudEvent {
	t.Helper()
	var out []cloudEvent
	for line := range strings.Lines(p.Must(append([]string{"events", "--json"}, flags...)...)) {
		out = append(out, parseEvent(t, []byte(line)))
	}
	return out
}

func parseEvent(t *testing.T, b []byte) cloudEvent {
	t.Helper()
	var e cloudEvent
	if err := json.Unmarshal(b, &e); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return e
}

// compare demands that what was read is what has happened: no gap, and no double but those with an id already seen.
func compare(t *testing.T, who string, got, want []cloudEvent) {
	t.Helper()
	seen, doubles := map[string]bool{}, 0
	for _, e := range got {
		if seen[e.ID] {
			doubles++
		}
		seen[e.ID] = true
	}
	missing := 0
	for _, e := range want {
		if !seen[e.ID] {
			if missing++; missing < 4 {
				t.Errorf("%s: %s (%s, %s) is missing", who, e.ID, e.Sequence, e.Type)
			}
		}
		delete(seen, e.ID)
	}
	if missing > 0 {
		t.Errorf("%s: %d of %d events are missing", who, missing, len(want))
	}
	for id := range seen {
		t.Errorf("%s: %s never happened", who, id)
	}
	t.Logf("%s: %d events, %d delivered again", who, len(want), doubles)
}

// api asks the hub as the operator.
func api(t *testing.T, p *kit.Pool, path string, header http.Header) *http.Response {
	t.Helper()
	client, key := operator(t, p)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// validate holds every event against the schemas that the hub serves.
func validate(t *testing.T, p *kit.Pool) map[string]int {
	t.Helper()
	resp := api(t, p, "/api/v1/events/schemas", nil)
	defer resp.Body.Close()
	raw := map[string]json.RawMessage{}
	if err := json.NewDecoder(resp.Body).Decode(&raw); err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	schemas := map[string]*jsonschema.Schema{}
	for name, b := range raw {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err == nil {
			err = c.AddResource("urn:"+name, v)
		}
		if err != nil {
			t.Fatal(err)
		}
		schemas[name] = c.MustCompile("urn:" + name)
	}
	types := map[string]int{}
	for line := range strings.Lines(p.Must("events", "--json")) {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		if err != nil {
			t.Fatal(err)
		}
		e := parseEvent(t, []byte(line))
		types[e.Type]++
		if err := schemas["envelope"].Validate(v); err != nil {
			t.Errorf("%s: %v", e.Type, err)
		}
		s := schemas[e.Type]
		if s == nil {
			t.Errorf("%s has no schema", e.Type)
			continue
		}
		if err := s.Validate(v.(map[string]any)["data"]); err != nil {
			t.Errorf("%s: %v", e.Type, err)
		}
	}
	t.Logf("%d types of events fit their schemas", len(types))
	return types
}
