package embedded

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/domain"
)

// maxLogText bounds a line: the server quotes foreign bytes in some of them.
const maxLogText = 400

// logger passes the server's log to zerolog. Fatal does not end the process: it is kept, and whoever waits for the
// server to become ready reads it.
type logger struct {
	log zerolog.Logger
	now func() time.Time // time.Now when nil

	mu    sync.Mutex
	fatal string
	stuck string    // the first write that failed for good: see Hub.Broken
	away  time.Time // when the hub was last said to be away
}

// reset begins anew for another server.
func (l *logger) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fatal, l.stuck = "", ""
}

// criticalWrite is in what the server says when a stream takes no more writes until the server is started again.
const criticalWrite = "Critical write error"

// disabled begins what it says when it gives up JetStream as a whole.
const disabled = "File system permission denied while writing, disabling JetStream"

// noteStuck keeps the first line that says that the store has given up.
func (l *logger) noteStuck(format string, v []any) {
	if !strings.Contains(format, criticalWrite) && !strings.HasPrefix(format, disabled) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stuck == "" {
		l.stuck = domain.Clip(fmt.Sprintf(format, v...), maxLogText)
	}
}

func (l *logger) broken() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stuck
}

func (l *logger) Noticef(format string, v ...any) { l.emit(l.log.Debug(), format, v) }
func (l *logger) Warnf(format string, v ...any)   { l.emit(l.warning(format), format, v) }
func (l *logger) Errorf(format string, v ...any)  { l.fault(format, v) }
func (l *logger) Debugf(format string, v ...any)  { l.emit(l.log.Trace(), format, v) }
func (l *logger) Tracef(format string, v ...any)  { l.emit(l.log.Trace(), format, v) }

// byDesign are the server's warnings about what is meant to be so: parts of 8 MiB need a larger payload, and the
// WebSocket listens on loopback behind the hub's own TLS front. They would only alarm an owner.
func byDesign(format string) bool {
	return strings.HasPrefix(format, "Maximum payloads over ") || strings.HasPrefix(format, "Websocket not configured with TLS.")
}

// awayEvery spaces the warnings of a leafnode that cannot reach its hub: it dials every few seconds, for hours if need be.
const awayEvery = time.Minute

// fault passes an error on. A dial of the leafnode that failed is none: losing the hub is part of a leafnode's life.
func (l *logger) fault(format string, v []any) {
	l.noteStuck(format, v)
	if !strings.HasPrefix(format, "Error trying to connect as leafnode to remote server ") {
		l.emit(l.log.Error(), format, v)
		return
	}
	l.emit(l.log.Debug(), format, v)
	now := time.Now
	if l.now != nil {
		now = l.now
	}
	at := now()
	l.mu.Lock()
	told := !l.away.IsZero() && at.Sub(l.away) < awayEvery
	if !told {
		l.away = at
	}
	l.mu.Unlock()
	if told {
		return
	}
	e := l.log.Warn()
	if n := len(v); n > 0 {
		if err, ok := v[n-1].(error); ok {
			e = e.Str("err", domain.Clip(err.Error(), maxLogText))
		}
	}
	e.Msg("hub away, dialling again")
}

func (l *logger) warning(format string) *zerolog.Event {
	if byDesign(format) {
		return l.log.Debug()
	}
	return l.log.Warn()
}

func (l *logger) Fatalf(format string, v ...any) {
	l.mu.Lock()
	l.fatal = domain.Clip(fmt.Sprintf(format, v...), maxLogText)
	l.mu.Unlock()
	l.emit(l.log.Error(), format, v)
}

func (l *logger) failure() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

// emit costs nothing when the level is off.
func (l *logger) emit(e *zerolog.Event, format string, v []any) {
	if e.Enabled() {
		e.Str("text", domain.Clip(fmt.Sprintf(format, v...), maxLogText)).Msg("nats")
	}
}
