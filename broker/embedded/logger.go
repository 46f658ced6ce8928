package embedded

import (
	"fmt"
	"strings"
	"sync"

	"github.com/rs/zerolog"

	"tensorturn/domain"
)

// maxLogText bounds a line: the server quotes foreign bytes in some of them.
const maxLogText = 400

// logger passes the server's log to zerolog. Fatal does not end the process: it is kept, and whoever waits for the
// server to become ready reads it.
type logger struct {
	log zerolog.Logger

	mu    sync.Mutex
	fatal string
}

func (l *logger) Noticef(format string, v ...any) { l.emit(l.log.Debug(), format, v) }
func (l *logger) Warnf(format string, v ...any)   { l.emit(l.warning(format), format, v) }
func (l *logger) Errorf(format string, v ...any)  { l.emit(l.log.Error(), format, v) }
func (l *logger) Debugf(format string, v ...any)  { l.emit(l.log.Trace(), format, v) }
func (l *logger) Tracef(format string, v ...any)  { l.emit(l.log.Trace(), format, v) }

// byDesign are the server's warnings about what is meant to be so: parts of 8 MiB need a larger payload, and the
// WebSocket listens on loopback behind the hub's own TLS front. They would only alarm an owner.
func byDesign(format string) bool {
	return strings.HasPrefix(format, "Maximum payloads over ") || strings.HasPrefix(format, "Websocket not configured with TLS.")
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
