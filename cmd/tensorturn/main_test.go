package main

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"tensorturn/agent/device"
	"tensorturn/agent/trainer/process/sandbox"
	"tensorturn/broker/identity"
	"tensorturn/projections/keys"
)

// update writes what the commands really say into the scripts: go test ./cmd/tensorturn -update; then read the difference.
var update = flag.Bool("update", false, "update the expected texts in testdata")

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == sandbox.HelperWord || os.Args[1] == device.HelperWord) {
		main() // agents in these tests start their helpers from this very file
	}
	testscript.Main(m, map[string]func(){"tensorturn": main, "openfiles": printOpenFiles})
}

// TestScripts types commands as a person does, against hubs and agents that are copies of this test's own binary, and
// so under the race detector when the test is. Scripts have, beside testscript's own commands:
//
//	exits CODE COMMAND...   run a command that must end with the exit code
//	ready DIR               wait for the hub that was started on DIR, and set URL
//	keep NAME               set NAME to what the last command printed
//	forge NAME TOKEN        set NAME to a token for the same hub that the hub has never made
//	mistype NAME TOKEN      set NAME to TOKEN with one letter changed
//	rekey FILE KEY          write the hub's operator.json with another key
//	revoke-all              revoke every API key
//	wrongkey FILE           write the hub's operator.json with a key that is well made and not the hub's
//	spoil DIR               change the last byte of every file in the folder
//	key FILE                write the public key that the last command's JSON names
//	until PATTERN COMMAND.. run a command until it prints a match, for at most patience
func TestScripts(t *testing.T) {
	digits, err := filepath.Abs("demo/digits.csv.gz")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("TENSORTURN_CONTEXT", filepath.Join(e.WorkDir, "hub", "operator.json"))
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, "config"))
			e.Setenv("XDG_DATA_HOME", filepath.Join(e.WorkDir, "data"))
			e.Setenv("DIGITS", digits)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits, "ready": ready, "keep": keep, "forge": forge, "mistype": mistype, "until": until, "wrongkey": wrongKey, "rekey": rekey, "revoke-all": revokeAll, "key": writeKey, "spoil": spoil,
		},
		RequireExplicitExec: true, UpdateScripts: *update,
	})
}

// patience bounds every wait of a script.
const patience = 30 * time.Second

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// poll asks until yes says so.
func poll(ts *testscript.TestScript, what string, yes func() bool) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !yes(); <-tick.C {
		if time.Since(began) > patience {
			ts.Fatalf("waited %s for %s", patience, what)
		}
	}
}

func ready(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: ready DIR")
	}
	var c operatorContext
	poll(ts, "the hub on "+args[0], func() bool {
		b, err := os.ReadFile(filepath.Join(ts.MkAbs(args[0]), "operator.json"))
		return err == nil && json.Unmarshal(b, &c) == nil
	})
	ts.Setenv("URL", c.URL)
}

func keep(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: keep NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

func forge(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: forge NAME TOKEN")
	}
	real, err := identity.ParseToken(args[1])
	ts.Check(err)
	forged, err := identity.NewToken(strings.NewReader(strings.Repeat("forged", 20)), real.Pin())
	ts.Check(err)
	ts.Setenv(args[0], forged.Plain())
}

func mistype(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || len(args[1]) < 20 {
		ts.Fatalf("usage: mistype NAME TOKEN")
	}
	b := []byte(args[1])
	if b[10]++; b[10] > 'z' || b[10] > '9' && b[10] < 'A' || b[10] > 'Z' && b[10] < 'a' {
		b[10] = '0'
	}
	ts.Setenv(args[0], string(b))
}

func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until PATTERN COMMAND...")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	poll(ts, args[0], func() bool {
		ts.Check(ts.Exec(args[1], args[2:]...))
		return pattern.MatchString(ts.ReadFile("stdout"))
	})
}

func rekey(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: rekey FILE KEY")
	}
	c, err := loadContext(ts.Getenv("TENSORTURN_CONTEXT"))
	ts.Check(err)
	c.Key = args[1]
	ts.Check(c.save(ts.MkAbs(args[0])))
}

func revokeAll(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(ts.Exec("tensorturn", "key", "list", "--json"))
	var ks []keys.Key
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &ks))
	for _, k := range ks {
		ts.Check(ts.Exec("tensorturn", "key", "revoke", string(k.ID)))
	}
}

func wrongKey(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: wrongkey FILE")
	}
	c, err := loadContext(ts.Getenv("TENSORTURN_CONTEXT"))
	ts.Check(err)
	key, err := identity.NewOperatorKey(strings.NewReader(strings.Repeat("forged", 20)))
	ts.Check(err)
	c.Key = key.Plain()
	ts.Check(c.save(ts.MkAbs(args[0])))
}

func writeKey(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: key FILE")
	}
	var v struct{ Key string }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &v))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(v.Key+"\n"), 0o600))
}

func spoil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: spoil DIR")
	}
	files, err := filepath.Glob(filepath.Join(ts.MkAbs(args[0]), "*"))
	ts.Check(err)
	if len(files) == 0 {
		ts.Fatalf("%s is empty", args[0])
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		ts.Check(err)
		b[len(b)-1] ^= 1
		ts.Check(os.WriteFile(f, b, 0o600))
	}
}
