package gateway_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"tensorturn/broker/gateway"
)

var update = flag.Bool("update", false, "write openapi.json anew")

// document fetches the served OpenAPI document, indented.
func document(t *testing.T) []byte {
	t.Helper()
	r := newRig(t, func(c *gateway.Config) { c.Version = "v1" })
	var b bytes.Buffer
	r.must(json.Indent(&b, r.call("GET", "/api/v1/openapi.json", r.key, nil).body, "", "  "))
	b.WriteByte('\n')
	return b.Bytes()
}

// The committed document is the served one: a change of the API is seen in review.
func TestOpenAPIIsCommitted(t *testing.T) {
	got := document(t)
	if *update {
		if err := os.WriteFile("openapi.json", got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the API has changed: look at the difference after go test ./broker/gateway -run OpenAPI -update")
	}
}

// The document is OpenAPI 3.1 whose references lead somewhere, whose operations have names of their own, and whose
// refusals are our problem body.
func TestOpenAPIIsSound(t *testing.T) {
	var doc struct {
		OpenAPI    string `json:"openapi"`
		Paths      map[string]map[string]json.RawMessage
		Components struct{ Schemas map[string]json.RawMessage }
		Security   []map[string][]string
	}
	raw := document(t)
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" || len(doc.Security) != 1 {
		t.Errorf("version %s, security %v", doc.OpenAPI, doc.Security)
	}
	for _, part := range strings.Split(string(raw), `"$ref": "#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if doc.Components.Schemas[name] == nil {
			t.Errorf("a reference to %s leads nowhere", name)
		}
	}
	seen := map[string]bool{}
	for path, ops := range doc.Paths {
		for method, body := range ops {
			var o struct {
				OperationID string
				Responses   map[string]struct {
					Content map[string]struct{ Schema map[string]any }
				}
			}
			if err := json.Unmarshal(body, &o); err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			if o.OperationID == "" || seen[o.OperationID] {
				t.Errorf("%s %s: operation id %q", method, path, o.OperationID)
			}
			seen[o.OperationID] = true
			if ref := o.Responses["default"].Content["application/problem+json"].Schema["$ref"]; ref != "#/components/schemas/Problem" {
				t.Errorf("%s %s: refusals are described as %q", method, path, ref)
			}
		}
	}
	if len(seen) < 14 {
		t.Errorf("only %d operations are described", len(seen))
	}
}
