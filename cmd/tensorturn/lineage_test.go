package main

import (
	"bytes"
	"strings"
	"testing"

	"tensorturn/projections/replay"
)

// A table of lineage fits on a screen unless more is asked for, and says what it leaves out; JSON has all.
func TestLineageRows(t *testing.T) {
	merges := make([]replay.Ancestor, 0, lineageRows+1)
	for round := range lineageRows + 1 {
		merges = append(merges, replay.Ancestor{Round: round + 1, Shares: []replay.Share{{Slot: "m-1/0", Weight: 1}}})
	}
	for name, c := range map[string]struct {
		merges []replay.Ancestor
		round  int
		all    bool
		json   bool
		rows   int
		said   string
	}{
		"at the limit": {merges: merges[1:], rows: lineageRows},
		"beyond":       {merges: merges, rows: lineageRows, said: "1 contribution before these: --all shows all, --round N those of one round\n"},
		"all":          {merges: merges, all: true, rows: lineageRows + 1},
		"one round":    {merges: merges, round: 1, rows: 1},
		"json":         {merges: merges, json: true, rows: lineageRows + 1},
	} {
		t.Run(name, func(t *testing.T) {
			var out, said bytes.Buffer
			a := &app{terminal: &terminal{json: c.json, out: &out, err: &said, size: func() int { return 80 }}}
			if err := a.lineage(c.merges, c.round, c.all); err != nil {
				t.Fatal(err)
			}
			rows := strings.Count(out.String(), "m-1/0")
			if rows != c.rows || said.String() != c.said {
				t.Errorf("%d rows and %q, want %d and %q", rows, said.String(), c.rows, c.said)
			}
			if newest := strings.Contains(out.String(), "\n21 "); !c.json && c.round == 0 && !newest {
				t.Errorf("the newest round is missing:\n%s", out.String())
			}
		})
	}
}
