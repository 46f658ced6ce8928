package embedded

import (
	"bytes"
	"strings"
	"testing"

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
