package gateway_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"tensorturn/broker/gateway"
	"tensorturn/projections/replay"
)

// operation is what the OpenAPI document says of one method of one path.
type operation struct {
	OperationID string
	Parameters  []struct{ Name, In, Ref string }
	Responses   map[string]struct {
		Headers map[string]any
		Content map[string]struct{ Schema json.RawMessage }
	}
}

// described is the document as these tests read it.
type described struct {
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]schema }
}

type schema struct {
	Ref        string `json:"$ref"`
	Type       any
	Properties map[string]schema
}

func (s schema) isArray() bool {
	list, _ := s.Type.([]any)
	return s.Type == "array" || slices.Contains(list, any("array"))
}

// unpaged are the answers with lists in them that need no pages, and why.
var unpaged = map[string]string{
	"run-logs":     "asks 16 machines at most, each for 32 KiB at most",
	"show-hub":     "one row for each kind of store",
	"explain-run":  "one run: its machines are bounded, and each is needed for the figures",
	"show-run":     "one run: slots, members and evaluations are bounded by its spec",
	"show-machine": "one machine: slots are bounded",
	"show-model":   "one model: versions are bounded",
}

// missingPages lists the GETs of a document that give lists, on their own or inside of an object, and no pages of them.
func missingPages(doc described) []string {
	var out []string
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		o, ok := doc.Paths[path]["get"]
		if !ok || unpaged[o.OperationID] != "" || !givesList(doc, o) {
			continue
		}
		var has []string
		for _, p := range o.Parameters {
			has = append(has, p.Name)
		}
		_, link := o.Responses["200"].Headers["Link"]
		if !slices.Contains(has, "after") || !slices.Contains(has, "limit") || !link {
			out = append(out, "GET "+path)
		}
	}
	return out
}

// givesList reports whether the answer is an array, or an object with one.
func givesList(doc described, o operation) bool {
	var s schema
	if json.Unmarshal(o.Responses["200"].Content["application/json"].Schema, &s) != nil {
		return false
	}
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		s = doc.Components.Schemas[name]
	}
	if s.isArray() {
		return true
	}
	for _, p := range s.Properties {
		if p.isArray() {
			return true
		}
	}
	return false
}

func describedNow(t *testing.T) described {
	t.Helper()
	var doc described
	if err := json.Unmarshal(document(t), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// Every list of the document comes in pages, and every exception is still there.
func TestEveryListHasPages(t *testing.T) {
	doc := describedNow(t)
	for _, m := range missingPages(doc) {
		t.Errorf("%s gives a list without after, limit and Link: embed gateway.Page, or say in unpaged why it is bounded", m)
	}
	lists, stale := 0, maps.Clone(unpaged)
	for _, ops := range doc.Paths {
		if o, ok := ops["get"]; ok {
			delete(stale, o.OperationID)
			if givesList(doc, o) {
				lists++
			}
		}
	}
	if len(stale) > 0 || lists < 12 {
		t.Errorf("%d lists; no such operations: %v", lists, stale)
	}
	for _, path := range []string{"/api/v1/keys", "/api/v1/usage", "/api/v1/runs/{id}/events"} { // a planted fault is seen
		o := doc.Paths[path]["get"]
		o.Parameters = o.Parameters[:0]
		bad := described{Paths: map[string]map[string]operation{path: {"get": o}}, Components: doc.Components}
		if got := missingPages(bad); len(got) != 1 {
			t.Errorf("%s without pages: %v", path, got)
		}
	}
}

// repeatableByNature are the POSTs that TestRepeatedPosts has no row for, and why a repetition does no harm.
var repeatableByNature = map[string]string{
	"/api/v1/log/verify":              "changes nothing",
	"/api/v1/runs/explain":            "changes nothing",
	"/api/v1/webhooks/{id}/redeliver": "dead events are sent once more; sent ones are no longer dead",
}

// untried lists the POSTs of the document that no path of the table stands for.
func untried(doc described, paths []string) []string {
	var out []string
	for _, template := range slices.Sorted(maps.Keys(doc.Paths)) {
		if _, ok := doc.Paths[template]["post"]; ok && repeatableByNature[template] == "" &&
			!slices.ContainsFunc(paths, func(p string) bool { return fits(template, p) }) {
			out = append(out, template)
		}
	}
	return out
}

// fits reports whether a path is one of the template's: {x} stands for one segment.
func fits(template, path string) bool {
	a, b := strings.Split(template, "/"), strings.Split(path, "/")
	return slices.EqualFunc(a, b, func(x, y string) bool { return x == y || strings.HasPrefix(x, "{") && y != "" })
}

// Every POST of the document says that it takes a key, and is tried in TestRepeatedPosts.
func TestEveryPostIsTried(t *testing.T) {
	doc := describedNow(t)
	var paths []string
	for _, p := range repeatedPosts(newRig(t, nil)) {
		paths = append(paths, p.path)
	}
	for _, p := range untried(doc, paths) {
		t.Errorf("POST %s is not repeated under a key in any test: add a row to repeatedPosts", p)
	}
	if got := untried(doc, paths[1:]); fmt.Sprint(got) != "[/api/v1/runs]" {
		t.Errorf("without its first row: %v", got)
	}
	for path := range repeatableByNature {
		if _, ok := doc.Paths[path]["post"]; !ok {
			t.Errorf("there is no POST %s", path)
		}
	}
	for path, ops := range doc.Paths {
		o, ok := ops["post"]
		if ok && !slices.ContainsFunc(o.Parameters, func(p struct{ Name, In, Ref string }) bool { return p.Name == "Idempotency-Key" && p.In == "header" }) {
			t.Errorf("POST %s does not tell of its key", path)
		}
	}
}

// What is repeatable by nature is: verified twice, redelivered twice, with and without a key, and no record is written.
func TestRepeatableByNature(t *testing.T) {
	hooks := &hooksOf{dir: t.TempDir()}
	r := newRig(t, func(c *gateway.Config) { c.Events, c.Webhooks = noEvents{}, hooks.open(t) })
	t.Cleanup(hooks.close)
	var k struct{ ID string }
	r.api("POST", "/api/v1/webhooks", map[string]any{"url": "http://127.0.0.1:1/x"}, &k)
	end := r.end()
	for _, path := range []string{"/api/v1/log/verify", "/api/v1/webhooks/" + k.ID + "/redeliver"} {
		for _, once := range []string{"one", "one", "two", ""} {
			if a := r.under(once, path, nil); a.status >= 300 {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
	}
	if now := r.end(); now != end {
		t.Errorf("%d records were written", now-end)
	}
}

// The members of an ensemble are told; a fused run has none.
func TestMembersOfARun(t *testing.T) {
	r := newRig(t, nil)
	in := r.submission("r-1")
	in["spec"].(map[string]any)["mode"] = "ensemble"
	in["spec"].(map[string]any)["ensemble"] = map[string]any{"members": 3}
	r.api("POST", "/api/v1/runs", in, nil)
	r.api("POST", "/api/v1/runs", r.submission("r-2"), nil)
	var all, rest []replay.Origin
	if r.api("GET", "/api/v1/runs/r-1/members", nil, &all); len(all) != 3 || all[0].Seed == all[1].Seed {
		t.Errorf("%+v", all)
	}
	if r.api("GET", "/api/v1/runs/r-1/members?after="+itoa(uint64(all[1].Member)), nil, &rest); len(rest) != 1 || rest[0].Member != all[2].Member {
		t.Errorf("%+v", rest)
	}
	if r.api("GET", "/api/v1/runs/r-2/members", nil, &all); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}
