package agent

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker/wire"
)

// An agent that has just started has no link for a moment: nobody is alarmed, unless it lasts.
func TestFirstContactIsQuiet(t *testing.T) {
	noLink, fine := errors.New("no link"), &wire.SyncReply{}
	type sync struct {
		at    time.Duration
		reply *wire.SyncReply
		err   error
	}
	for name, c := range map[string]struct {
		syncs []sync
		want  string // levels of the lines
	}{
		"link comes up":     {[]sync{{0, nil, noLink}, {2 * time.Second, nil, noLink}, {4 * time.Second, fine, nil}}, "debug debug"},
		"it never does":     {[]sync{{0, nil, noLink}, {quietStart, nil, noLink}, {time.Minute, nil, noLink}}, "debug warn"},
		"lost after it was": {[]sync{{0, fine, nil}, {time.Second, nil, noLink}, {2 * time.Second, fine, nil}}, "warn info"},
		"the hub refuses":   {[]sync{{0, &wire.SyncReply{Error: &wire.Error{Why: "revoked"}}, nil}, {1, &wire.SyncReply{Error: &wire.Error{Why: "revoked"}}, nil}}, "warn"},
	} {
		var out bytes.Buffer
		k := complaints{log: zerolog.New(&out), quiet: quietStart}
		for _, s := range c.syncs {
			k.hear(s.at, s.reply, s.err, false)
		}
		var levels []string
		for line := range strings.Lines(out.String()) {
			_, rest, _ := strings.Cut(line, `"level":"`)
			level, _, _ := strings.Cut(rest, `"`)
			levels = append(levels, level)
		}
		if got := strings.Join(levels, " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
