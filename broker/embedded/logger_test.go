package embedded

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// Only the two warnings that describe our own design are lowered; the hub's log at info stays free of them and still
// shows every other one.
func TestWarningsByDesignAreLowered(t *testing.T) {
	for _, c := range []struct {
		format, level string
		args          []any
	}{
		{"Maximum payloads over %v are generally discouraged and could lead to poor performance", "debug", []any{"8.00 MB"}},
		{"Websocket not configured with TLS. DO NOT USE IN PRODUCTION!", "debug", nil},
		{"Websocket origin check failed", "warn", nil},
		{"Filestore [%s] Stream state has a checksum mismatch", "warn", []any{"EVENTS"}},
	} {
		var out bytes.Buffer
		l := &logger{log: zerolog.New(&out)}
		l.Warnf(c.format, c.args...)
		if !strings.Contains(out.String(), `"level":"`+c.level+`"`) {
			t.Errorf("%q: %s, want level %s", c.format, out.String(), c.level)
		}
	}
}

// A hub that is away is one warning a minute, whatever the leafnode dials; other errors stay errors.
func TestHubAwayIsSaidOnceAMinute(t *testing.T) {
	var out bytes.Buffer
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	l := &logger{log: zerolog.New(&out).Level(zerolog.InfoLevel), now: func() time.Time { return at }}
	const format = "Error trying to connect as leafnode to remote server %q (attempt %v): %v"
	for i := range 121 { // two minutes and the first moment of the third, a dial a second
		l.Errorf(format, "hub:7443", i+1, errors.New("connect: connection refused"))
		at = at.Add(time.Second)
	}
	if n := strings.Count(out.String(), `{"level":"warn","err":"connect: connection refused","message":"hub away, dialling again"}`); n != 3 || strings.Count(out.String(), "\n") != 3 {
		t.Errorf("%d warnings in two minutes, want 3:\n%s", n, out.String())
	}
	out.Reset()
	l.Errorf("Error signing the nonce: %v", errors.New("no key"))
	if !strings.Contains(out.String(), `"level":"error"`) {
		t.Errorf("another error: %s", out.String())
	}
}
