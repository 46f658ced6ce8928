// Package e2e tests the built binary: a hub and agents as processes of their own, over real links, killed, stopped and
// damaged from outside. What it must show is in the list; what a rule means is tested beside the rule.
package e2e

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tensorturn/test/kit"
)

// binary is what every test runs; TestMain builds it once.
var binary string

// kills is how often TestHubKilled kills the hub: a few times in make test, twenty in make chaos.
var kills = flag.Int("kills", 5, "how often the hub is killed during one run")

// chaosSeed draws the moments of the kills.
var chaosSeed = flag.Uint64("seed", 1, "seed of the moments at which the hub is killed, and of damaged places")

func TestMain(m *testing.M) { os.Exit(kit.Main(m, &binary)) }

// lease of the pools in these tests: short, so that losses show quickly, and long enough for two busy cores.
const lease = 3 * time.Second

// spec is a small run on the digits; more replaces or adds settings.
func spec(t *testing.T, more string) string {
	t.Helper()
	data, err := filepath.Abs("../../cmd/tensorturn/demo/digits.csv.gz")
	if err != nil {
		t.Fatal(err)
	}
	return "name: small\ndata: {path: " + data + "}\nkeep_every: 1\n" + more
}
