// Package arch holds the import table: which package may import which, with the reason beside each rule. When it fails,
// move the code, not the rule.
package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

type pkg struct {
	ImportPath string
	Imports    []string
}

const module = "tensorturn"

// rule says what packages under a prefix may import. An import of our own module must match Own; an outside import must
// not match Never.
type rule struct {
	Under string
	Own   []string // prefixes below the module that are allowed
	Never []string // outside prefixes that are forbidden
	Why   string
}

// impure is what the domain must not touch. math/rand is among them: randomness arrives as an argument.
var impure = []string{"net", "os", "math/rand", "crypto/rand", "log", "syscall", "runtime", "github.com/nats-io", "github.com/rs/zerolog"}

var rules = []rule{
	{"domain", []string{"domain"}, impure, "the domain is pure: values and functions that replay the same everywhere"},
	{"domain/event/eventtest", []string{"domain"}, nil, "a test harness: golden samples are files"},
	{"projections", []string{"projections", "domain"}, []string{"net", "os", "github.com/nats-io", "github.com/rs/zerolog"}, "views fold the log and do not act"},
	{"broker/wire", []string{"domain", "broker/wire"}, []string{"net", "os", "github.com/nats-io"}, "messages are values; both sides import them"},
	{"broker/identity", []string{"domain", "broker/identity", "broker/wire"}, []string{"github.com/nats-io/nats-server", "github.com/nats-io/nats.go"}, "keys and credentials without a server"},
	{"broker/embedded", []string{"domain", "broker/embedded", "broker/identity", "broker/wire"}, nil, "the only importer of nats-server"},
	{"broker/memory", []string{"domain", "broker", "broker/memory"}, []string{"github.com/nats-io", "os", "net"}, "the simulator's store"},
	{"broker/brokertest", []string{"domain", "broker", "broker/brokertest"}, nil, "the suite both stores pass, used by tests alone"},
	{"broker/jetstream", []string{"domain", "broker", "broker/jetstream"}, []string{"github.com/nats-io/nats-server"}, "an adapter is handed its connection"},
	{"broker/snapshot", []string{"domain", "broker/snapshot"}, []string{"net", "github.com/nats-io"}, "frozen state as files; what is in it is the hub's"},
	{"broker/hub", []string{"domain", "projections", "broker", "broker/snapshot", "broker/wire", "broker/hub", "broker/identity"}, []string{"net/http", "github.com/nats-io/nats-server"}, "the one writer; the front is the gateway's"},
	{"broker/feed", []string{"domain", "projections", "broker", "broker/feed"}, []string{"net", "os", "github.com/nats-io"}, "the publisher knows ports, not stores"},
	{"broker/health", []string{"domain", "broker/health"}, []string{"net", "github.com/nats-io"}, "it is given functions to look with and to heal with"},
	{"broker/repair", []string{"domain", "broker", "broker/repair"}, []string{"net", "os", "github.com/nats-io"}, "it reads ports and writes through a callback"},
	{"broker/notify", []string{"broker/notify"}, []string{"os", "github.com/nats-io"}, "a protocol, told what the environment says"},
	{"broker/metrics", []string{"domain", "broker/metrics"}, []string{"github.com/nats-io", "os"}, "it counts events and is asked over HTTP"},
	{"broker/webhook", []string{"domain", "projections", "broker/feed", "broker/webhook"}, []string{"github.com/nats-io"}, "it reads events from the source and sends them over HTTP"},
	{"broker/inference", []string{"domain", "broker", "broker/inference"}, []string{"net", "os", "github.com/nats-io"}, "it answers for models and knows no caller; models come from a loader that cmd makes"},
	{"broker/dispatch", []string{"domain", "broker/wire", "broker/inference", "broker/dispatch"}, []string{"net/http", "os", "github.com/nats-io/nats-server"}, "it asks machines for predictions over a link it is handed"},
	{"broker/gateway/v2", []string{"domain", "projections", "broker/inference", "broker/gateway/v2"}, []string{"github.com/nats-io", "github.com/danielgtaylor", "github.com/go-chi"}, "a protocol of its own: nothing else writes its answers"},
	{"broker/gateway", []string{"domain", "projections", "broker", "broker/inference", "broker/feed", "broker/webhook", "broker/hub", "broker/wire", "broker/identity", "broker/health", "broker/gateway"}, []string{"github.com/nats-io/nats-server"}, "the front hands on and decides nothing"},
	{"agent/rest", []string{"domain", "agent/rest"}, []string{"net", "os", "github.com/nats-io"}, "rules and a clock that it is handed"},
	{"agent/bench", []string{"domain", "agent/bench"}, []string{"net", "github.com/nats-io"}, "it measures a machine and knows the hub by a port alone"},
	{"agent/device", []string{"domain", "agent/device"}, []string{"net/http", "github.com/nats-io"}, "it asks hardware and knows no hub"},
	{"agent/doctor", []string{"domain", "agent/doctor", "broker/identity"}, []string{"github.com/nats-io"}, "it looks from outside, as a person would: at folders, ports and answers"},
	{"agent/trainer", []string{"domain", "agent/trainer"}, []string{"net", "github.com/nats-io"}, "trainers know no hub"},
	{"agent/trainer/process", []string{"domain", "agent/trainer"}, []string{"net/http", "github.com/nats-io"}, "speaks with its own child over a Unix socket; knows no hub either"},
	{"agent", []string{"domain", "agent", "broker/wire", "broker/embedded", "broker/identity"}, []string{"github.com/nats-io/nats-server"}, "an agent knows the hub by wire alone"},
	{"cmd", []string{"domain", "projections", "broker", "agent", "cmd"}, []string{"github.com/nats-io/nats-server"}, "only cmd imports both sides, and wires"},
}

// exact are rules whose package is itself a parent: they hold for the package alone.
var exact = []rule{
	{"broker", []string{"domain"}, []string{"net", "os", "github.com/nats-io"}, "ports and the committer stand on the domain alone"},
}

func TestImports(t *testing.T) {
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		r, ok := ruleFor(name)
		if !ok {
			if !strings.HasPrefix(name, "test") {
				t.Errorf("%s: no rule: give the room a line in the table", name)
			}
			continue
		}
		for _, bad := range breaks(name, r, p.Imports) {
			t.Errorf("%s imports %s: %s", name, bad, r.Why)
		}
	}
}

// TestTableCanFail shows the table at work on imports that would be wrong.
func TestTableCanFail(t *testing.T) {
	for _, c := range []struct{ in, imports string }{
		{"domain/run", "net/http"}, {"domain/plan", module + "/broker"}, {"agent", module + "/broker/hub"},
		{"broker/gateway", "github.com/nats-io/nats-server/v2/server"}, {"projections/runs", module + "/broker"}, {"broker", module + "/projections"},
	} {
		r, ok := ruleFor(c.in)
		if !ok || len(breaks(c.in, r, []string{c.imports})) == 0 {
			t.Errorf("%s may import %s: the table cannot fail", c.in, c.imports)
		}
	}
}

func ruleFor(name string) (rule, bool) {
	for _, r := range exact {
		if name == r.Under {
			return r, true
		}
	}
	best, ok := rule{}, false
	for _, r := range rules {
		if under(name, r.Under) && len(r.Under) >= len(best.Under) {
			best, ok = r, true
		}
	}
	return best, ok
}

func breaks(name string, r rule, imports []string) []string {
	var bad []string
	for _, i := range imports {
		own, isOwn := strings.CutPrefix(i, module+"/")
		switch {
		case isOwn && !allowed(own, r.Own):
			bad = append(bad, i)
		case !isOwn && forbidden(i, r.Never):
			bad = append(bad, i)
		}
	}
	return bad
}

// allowed: "broker" in a list means the root package alone, since its adapters are rooms of their own; every other
// prefix covers what is below it, but for cmd, which may import all of broker and agent.
func allowed(own string, list []string) bool {
	for _, a := range list {
		if a == "broker" && !contains(list, "cmd") {
			if own == a {
				return true
			}
			continue
		}
		if under(own, a) {
			return true
		}
	}
	return false
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

func forbidden(i string, never []string) bool {
	for _, n := range never {
		if under(i, n) {
			return true
		}
	}
	return false
}

func under(path, prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var ps []pkg
	d := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return ps
		} else if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
}
