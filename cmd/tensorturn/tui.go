package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"

	"tensorturn/domain"
)

// The rules of output: data goes to standard output and nothing else does; talk, progress and errors go to standard
// error in lower case without a full stop; --json prints one object on standard output (streams: one line each) and is a
// contract.

// Exit codes, the table that --help shows.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitDenied      = 4
	exitUnreachable = 5
	exitConflict    = 6
	exitRunFailed   = 7
	exitDegraded    = 8
	exitIntegrity   = 9
	exitTimeout     = 124
	exitInterrupted = 130
)

// exitHelp is shown at the foot of the root help.
const exitHelp = `exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 not permitted, 5 hub unreachable, 6 conflict,
7 run failed, 8 finished degraded, 9 integrity failure, 124 timed out, 130 interrupted`

// exitError carries an exit code that the kind of error does not give. Without an error nothing is left to say.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return "exit code " + strconv.Itoa(e.code)
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

// withExit gives err an exit code of its own.
func withExit(code int, err error) error { return &exitError{code: code, err: err} }

// terminal is where a command reads and writes.
type terminal struct {
	in       *os.File
	out, err io.Writer
	live     bool       // standard error is a terminal that can redraw a line
	size     func() int // its columns now: people change their windows
	json     bool
	quiet    bool
}

func newTerminal(in *os.File, out, errw *os.File) *terminal {
	fd := int(errw.Fd())
	size := func() int {
		if w, _, err := term.GetSize(fd); err == nil && w > 0 {
			return w
		}
		return 80
	}
	return &terminal{in: in, out: out, err: errw, live: term.IsTerminal(fd) && os.Getenv("TERM") != "dumb", size: size}
}

// say talks on standard error.
func (t *terminal) say(format string, args ...any) {
	if !t.quiet {
		fmt.Fprintf(t.err, format+"\n", args...)
	}
}

// print writes data to standard output.
func (t *terminal) print(format string, args ...any) { fmt.Fprintf(t.out, format+"\n", args...) }

// object prints v as one JSON object on standard output.
func (t *terminal) object(v any) error {
	e := json.NewEncoder(t.out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// line prints v as one line of JSON on standard output, for streams.
func (t *terminal) line(v any) error {
	e := json.NewEncoder(t.out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// fail prints an error in its three parts and gives the exit code.
func (t *terminal) fail(err error) int {
	if err == nil {
		return exitOK
	}
	if own, ok := errors.AsType[*exitError](err); ok && own.err == nil {
		return own.code
	}
	fmt.Fprintf(t.err, "tensorturn: error: %s\n", clean(err.Error()))
	if next := domain.NextOf(err); next != "" {
		fmt.Fprintf(t.err, "tensorturn: hint: %s\n", clean(next))
	}
	if t.json {
		t.object(map[string]any{"error": map[string]string{
			"kind": string(domain.KindOf(err)), "why": clean(err.Error()), "next": clean(domain.NextOf(err))}})
	}
	return exitCode(err)
}

// exitCode is the table from kinds to exit codes.
func exitCode(err error) int {
	var own *exitError
	if errors.As(err, &own) {
		return own.code
	}
	switch domain.KindOf(err) {
	case "":
		return exitOK
	case domain.KindInvalid:
		return exitUsage
	case domain.KindNotFound:
		return exitNotFound
	case domain.KindDenied:
		return exitDenied
	case domain.KindUnavailable:
		return exitUnreachable
	case domain.KindConflict, domain.KindFenced:
		return exitConflict
	case domain.KindIntegrity:
		return exitIntegrity
	}
	return exitFailure
}

// clean keeps control characters of foreign text off the screen.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
