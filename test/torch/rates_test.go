package torch

import (
	"regexp"
	"strings"
	"testing"

	"tensorturn/agent/trainer/process"
)

// ratesIn reads the rates that a script printed into its log.
func ratesIn(t *testing.T, o *process.Opener) string {
	t.Helper()
	var rates []string
	for _, l := range o.Logs() {
		b, _, err := o.ReadLog(l, 0, process.MaxLog)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`rate (\S+)\n`).FindAllStringSubmatch(string(b), -1) {
			rates = append(rates, m[1])
		}
	}
	return strings.Join(rates, " ")
}
