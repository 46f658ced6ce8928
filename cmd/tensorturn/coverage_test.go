package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// routesOf is the table of commands against the API: how each is called, and the routes that do its work, so that another
// program can do the same. $DIR is a folder, with a spec and its data in it.
var routesOf = map[string]struct {
	args   string
	routes []string
}{
	"credential create": {"--role observer --name x --out $DIR/o", []string{"POST /api/v1/observers"}},
	"credential list":   {"", []string{"GET /api/v1/observers"}},
	"credential revoke": {"o-1", []string{"DELETE /api/v1/observers/{id}"}},
	"events":            {"--run r-1", []string{"GET /api/v1/events"}},
	"hub status":        {"", []string{"GET /api/v1/hub"}},
	"key create":        {"--model m", []string{"POST /api/v1/keys"}},
	"key list":          {"", []string{"GET /api/v1/keys"}},
	"key revoke":        {"k-1", []string{"DELETE /api/v1/keys/{id}"}},
	"log export":        {"r-1 -o $DIR/x", []string{"GET /api/v1/runs/{run}/export"}},
	"log verify":        {"", []string{"GET /api/v1/log", "POST /api/v1/log/verify"}},
	"machine bench":     {"m --wait 0s", []string{"POST /api/v1/machines/{id}/bench"}},
	"machine label":     {"m site=home", []string{"POST /api/v1/machines/{id}/label"}},
	"machine rest":      {"m --never", []string{"POST /api/v1/machines/{id}/rest"}},
	"machine drain":     {"m", []string{"POST /api/v1/machines/{id}/drain"}},
	"machine list":      {"", []string{"GET /api/v1/machines"}},
	"machine pause":     {"m", []string{"POST /api/v1/machines/{id}/pause"}},
	"machine resume":    {"m", []string{"POST /api/v1/machines/{id}/resume"}},
	"machine top":       {"--once", []string{"GET /api/v1/machines"}},
	"machine revoke":    {"m --yes", []string{"POST /api/v1/machines/{id}/revoke"}},
	"machine show":      {"m", []string{"GET /api/v1/machines/{id}"}},
	"model deploy":      {"r-1 --name m", []string{"POST /api/v1/models"}},
	"model export":      {"r-1 $DIR/x", []string{"GET /api/v1/runs/{id}", "GET /blobs/{digest}"}},
	"model lineage":     {"r-1", []string{"GET /api/v1/runs/{id}", "GET /api/v1/log"}},
	"model list":        {"", []string{"GET /api/v1/models"}},
	"model retire":      {"m", []string{"DELETE /api/v1/models/{name}"}},
	"model rollback":    {"m", []string{"POST /api/v1/models/{name}/rollback"}},
	"run cancel":        {"r-1", []string{"POST /api/v1/runs/{id}/cancel"}},
	"run explain":       {"r-1", []string{"GET /api/v1/runs/{id}/explain"}},
	"run goodput":       {"r-1", []string{"GET /api/v1/runs/{id}", "GET /api/v1/log"}},
	"run list":          {"", []string{"GET /api/v1/runs"}},
	"run logs":          {"r-1", []string{"GET /api/v1/runs/{id}/logs"}},
	"run pause":         {"r-1", []string{"POST /api/v1/runs/{id}/pause"}},
	"run replay":        {"r-1", []string{"GET /api/v1/runs/{id}", "GET /api/v1/log"}},
	"run resume":        {"r-1", []string{"POST /api/v1/runs/{id}/resume"}},
	"run show":          {"r-1", []string{"GET /api/v1/runs/{id}"}},
	"run submit":        {"$DIR/spec.yaml", []string{"PUT /blobs/{digest}", "POST /api/v1/runs"}},
	"run watch":         {"r-1", []string{"GET /api/v1/runs/{id}", "GET /api/v1/runs/{id}/events"}},
	"token create":      {"", []string{"POST /api/v1/tokens"}},
	"token list":        {"", []string{"GET /api/v1/tokens"}},
	"token revoke":      {"t-1", []string{"DELETE /api/v1/tokens/{id}"}},
	"usage":             {"", []string{"GET /api/v1/usage"}},
	"webhook create":    {"https://example.org/x", []string{"POST /api/v1/webhooks"}},
	"webhook list":      {"", []string{"GET /api/v1/webhooks"}},
	"webhook redeliver": {"w-1", []string{"POST /api/v1/webhooks/{id}/redeliver"}},
	"webhook remove":    {"w-1", []string{"DELETE /api/v1/webhooks/{id}"}},
}

// local are the commands that no API can do, and why.
var local = map[string]string{
	"agent join":        "makes a key on this machine; its request is /api/v1/enrol, for machines alone",
	"agent start":       "is the agent; it speaks the leafnode protocol and /blobs",
	"credential export": "writes the files of this machine's own identity",
	"demo":              "starts a hub and agents of its own",
	"doctor":            "looks at this machine, its folder and its way to the hub; a hub shows what it knows at /api/v1/self and /api/v1/machines",
	"drill":             "starts a hub and agents of its own; of a run it reads what run show and the blobs do",
	"hub start":         "is the hub",
	"log import":        "writes a verified file into a folder of this machine; no hub has a part in it",
	"log repair":        "writes the folder of a hub that is stopped",
	"version":           "names this binary",
}

// besides are the routes that the OpenAPI document names in its description: streams and bytes.
var besides = []string{"GET /api/v1/log", "GET /api/v1/runs/{run}/export", "GET /api/v1/events", "HEAD /blobs/{digest}", "PUT /blobs/{digest}", "GET /blobs/{digest}", "POST /blobs/missing", "HEAD /link", "GET /link", "PUT /link"}

// others are operations that no command calls, and why they are there.
var others = map[string]string{
	"POST /api/v1/machines/{id}/unpause": "machine resume --gpu calls it; without the flag it is machines/{id}/resume",
	"GET /api/v1/runs/{id}/replay":       "run replay folds the log itself, so that it need not believe the hub",
	"GET /api/v1/runs/{id}/lineage":      "model lineage does so too",
	"GET /api/v1/runs/{id}/members":      "and of an ensemble",
	"POST /api/v1/runs/explain":          "run submit --dry-run calls it; without the flag it is runs",
	"GET /api/v1/models/{name}":          "model list tells the same of all",
}

// operations are the routes of the committed document.
func operations(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile("../../broker/gateway/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Info  struct{ Description string }
		Paths map[string]map[string]any
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	var out []string
	for path, ops := range doc.Paths {
		for method := range ops {
			out = append(out, strings.ToUpper(method)+" "+path)
		}
	}
	for _, b := range besides {
		_, path, _ := strings.Cut(b, " ")
		path, _, _ = strings.Cut(path, "/{")
		if !strings.Contains(doc.Info.Description, path) {
			t.Errorf("the document's description does not tell of %s", b)
		}
	}
	return append(out, besides...)
}

// commands are the names of all commands that do something.
func commands(c *cobra.Command, prefix string) []string {
	if !c.HasSubCommands() {
		return []string{strings.TrimSpace(prefix)}
	}
	var out []string
	for _, sub := range c.Commands() {
		out = append(out, commands(sub, prefix+" "+sub.Name())...)
	}
	return out
}

// uncovered lists the commands that have neither a route nor a reason.
func uncovered(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		_, ok := routesOf[n]
		return ok || local[n] != ""
	})
}

// Every command has its route in the API or a reason, and every operation a command or a reason. Each command is carried
// out against a server that writes down what it is asked: the table says no more and no less than what happens.
func TestEveryCommandHasItsRoute(t *testing.T) {
	known := operations(t)
	names := commands(newRoot(&app{terminal: &terminal{out: io.Discard, err: io.Discard}}), "")
	for _, n := range uncovered(names) {
		t.Errorf("%s has no route in routesOf and no reason in local", n)
	}
	if got := uncovered(append(names, "run fork")); !slices.Equal(got, []string{"run fork"}) {
		t.Errorf("a new command without a route: %v", got)
	}
	used := map[string]bool{}
	for _, n := range slices.Sorted(maps.Keys(routesOf)) {
		row := routesOf[n]
		if !slices.Contains(names, n) {
			t.Errorf("there is no command %s", n)
			continue
		}
		asked := carryOut(t, known, n, row.args, row.routes)
		for _, r := range row.routes {
			if used[r] = true; !slices.Contains(asked, r) {
				t.Errorf("%s asked for %q and not for %s", n, asked, r)
			}
		}
		for _, r := range asked {
			if !slices.Contains(known, r) {
				t.Errorf("%s asks for %s, which is described nowhere", n, r)
			}
		}
		t.Logf("%-18s %s", n, strings.Join(row.routes, ", "))
	}
	for _, n := range slices.Sorted(maps.Keys(local)) {
		if !slices.Contains(names, n) {
			t.Errorf("there is no command %s", n)
		}
		t.Logf("%-18s here alone: %s", n, local[n])
	}
	for _, o := range known {
		if !used[o] && others[o] == "" && !slices.Contains(besides, o) {
			t.Errorf("no command calls %s: say in others why it is there", o)
		}
	}
}

// carryOut runs a command against a server that knows a run and nothing else, until it has asked for what it should.
func carryOut(t *testing.T, known []string, name, arguments string, routes []string) []string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "spec.yaml"), "data: {path: x.csv}\nmodel: {kind: mlp, hidden: [2]}\nbatch: 2\nepochs: 1\n")
	write(t, filepath.Join(dir, "x.csv"), "a,b,label\n"+strings.Repeat("1,2,x\n3,4,y\n", 40))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var mu sync.Mutex
	var asked []string
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		route := routeOf(known, r.Method, r.URL.Path)
		mu.Lock()
		if !slices.Contains(asked, route) {
			asked = append(asked, route)
		}
		done := !slices.ContainsFunc(routes, func(want string) bool { return !slices.Contains(asked, want) })
		mu.Unlock()
		invented(w, route)
		if done && strings.HasPrefix(name, "run watch") { // it would wait for ever
			cancel()
		}
	}))
	defer s.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	file := filepath.Join(dir, "operator.json")
	if err := (operatorContext{URL: s.URL, Key: "key", CA: string(ca)}).save(file); err != nil {
		t.Fatal(err)
	}
	a := &app{terminal: &terminal{out: io.Discard, err: io.Discard, size: func() int { return 80 }}}
	root := newRoot(a)
	root.SetArgs(append(strings.Fields(name+" "+strings.ReplaceAll(arguments, "$DIR", dir)), "--context", file))
	if err := root.ExecuteContext(ctx); err != nil {
		t.Logf("%s: %v", name, err) // what is invented leads to nothing
	}
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(asked)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// routeOf finds the template of a request; the longest literal one wins.
func routeOf(known []string, method, path string) string {
	best := method + " " + path
	found := false
	for _, k := range known {
		m, template, _ := strings.Cut(k, " ")
		a, b := strings.Split(template, "/"), strings.Split(path, "/")
		if m == method && slices.EqualFunc(a, b, func(x, y string) bool { return x == y || strings.HasPrefix(x, "{") && y != "" }) &&
			(!found || strings.Count(k, "{") < strings.Count(best, "{")) {
			best, found = k, true
		}
	}
	return best
}

// invented answers with as much as a command needs to go on.
func invented(w http.ResponseWriter, route string) {
	const run = `{"id":"r-1","name":"x","spec":{"trainer":"process"},"phase":"running","mode":"fused","rounds":{"merged":1,"planned":2},"model":"%s","slots":[{"slot":"m.0"}]}`
	switch route {
	case "GET /api/v1/runs/{id}", "POST /api/v1/runs":
		fmt.Fprintf(w, run, strings.Repeat("ab", 32))
	case "GET /api/v1/keys", "GET /api/v1/machines", "GET /api/v1/models", "GET /api/v1/observers", "GET /api/v1/runs", "GET /api/v1/tokens", "GET /api/v1/webhooks":
		io.WriteString(w, "[]")
	case "GET /api/v1/log": // an empty one
	case "GET /api/v1/events", "HEAD /blobs/{digest}", "GET /blobs/{digest}", "GET /api/v1/runs/{run}/export":
		w.WriteHeader(http.StatusNotFound)
	default:
		if strings.HasPrefix(route, "DELETE ") || strings.HasPrefix(route, "PUT ") {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		io.WriteString(w, "{}")
	}
}
