package main

import (
	"fmt"
	"os"
	"time"
)

// tellEvery spaces the lines of a long experiment.
const tellEvery = time.Minute

// progress says now and then how far a long experiment is, on stderr: what it found goes to stdout.
type progress struct {
	what string
	said time.Time
}

func newProgress(what string) *progress { return &progress{what: what, said: time.Now()} }

// tell writes a line if the last one is long enough ago.
func (p *progress) tell(format string, args ...any) {
	if time.Since(p.said) >= tellEvery {
		p.said = time.Now()
		fmt.Fprintf(os.Stderr, "%s: %s\n", p.what, fmt.Sprintf(format, args...))
	}
}
