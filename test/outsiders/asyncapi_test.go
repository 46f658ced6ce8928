package outsiders

import (
	"flag"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"tensorturn/test/kit"
)

// asyncapi is a folder with node_modules/@asyncapi/parser in it.
var asyncapi = flag.String("asyncapi", "", "a folder where npm has installed @asyncapi/parser")

// TestAsyncAPIParses gives the document that a hub serves to the parser of those who made AsyncAPI, then the same document
// with one fault each, which it must refuse.
func TestAsyncAPIParses(t *testing.T) {
	if *asyncapi == "" {
		t.Skip("without @asyncapi/parser: make test-outsiders")
	}
	p := kit.NewPool(t, binary, lease)
	p.StartHub()
	resp := api(t, p, "/api/v1/events/asyncapi.json", nil)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	document := string(b)
	said := parseAsyncAPI(t, document)
	var messages int
	if n, _ := fmt.Sscanf(said, "3.0.0, %d messages", &messages); n != 1 || messages < 40 || strings.Count(said, "\n") > 0 {
		t.Errorf("the parser says:\n%s", said)
	}
	t.Log(said)
	for name, c := range map[string]struct{ from, to string }{
		"a reference that leads nowhere": {`#/components/schemas/envelope`, `#/components/schemas/nothing`},
		"an unknown action":              {`"action":"send"`, `"action":"shout"`},
		"no title":                       {`"title":"tensorturn events",`, ``},
		"a server without a protocol":    {`"protocol":"nats"`, `"protokoll":"nats"`},
	} {
		broken := strings.Replace(document, c.from, c.to, 1)
		if broken == document {
			t.Errorf("%s: the document has no %s", name, c.from)
			continue
		}
		if said := parseAsyncAPI(t, broken); !strings.Contains(said, " at ") {
			t.Errorf("%s: the parser says:\n%s", name, said)
		}
	}
}

func parseAsyncAPI(t *testing.T, document string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "node", "asyncapi.mjs", *asyncapi)
	c.Stdin = strings.NewReader(document)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}
