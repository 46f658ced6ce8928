package doctor

import (
	"context"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Where nothing listens the fix says once what has to be started: the hub, with its command on its own machine, or the proxy.
func TestNothingListens(t *testing.T) {
	shut := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	for name, c := range map[string]struct {
		change func(*exam)
		fix    string
	}{
		"agent":              {func(*exam) {}, "start the hub, and check the port in its address; if it runs already, open TCP 127.0.0.1:"},
		"hub":                {hubside, "start it with: tensorturn hub start --dir /agent; if it runs already, open TCP 127.0.0.1:"},
		"behind a proxy":     {func(e *exam) { behind(e, "http://127.0.0.1:9") }, "start the proxy, and check the port in its address; if it runs already, open TCP 127.0.0.1:9 "},
		"hub behind a proxy": {func(e *exam) { hubside(e); behind(e, "http://127.0.0.1:9") }, "start the proxy, and check the port"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newStand(t, time.Now(), ready).visitor()
			c.change(e)
			e.Dial = shut
			f := lookPort(t.Context(), e)
			if !strings.HasPrefix(f.Fix, c.fix) || strings.Count(f.Fix, "start ") != strings.Count(c.fix, "start ") {
				t.Errorf("fix %q, want %q first and nothing started twice", f.Fix, c.fix)
			}
		})
	}
}
