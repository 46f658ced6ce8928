package main

import (
	"time"

	"github.com/rs/zerolog"
)

// newLogger writes to standard error: lines for people on a terminal, JSON elsewhere.
func newLogger(t *terminal, level string) zerolog.Logger {
	l, err := zerolog.ParseLevel(level)
	if err != nil {
		l = zerolog.InfoLevel
	}
	if t.live {
		return zerolog.New(zerolog.ConsoleWriter{Out: t.err, TimeFormat: time.TimeOnly}).Level(l).With().Timestamp().Logger()
	}
	return zerolog.New(t.err).Level(l).With().Timestamp().Logger()
}
