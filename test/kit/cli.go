package kit

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Said is what a command answered.
type Said struct {
	Out, Err string
	Code     int
}

// env is the environment of every process: no context but the pool's own, nothing of the person who runs the test.
func (p *Pool) env() []string {
	return []string{"HOME=" + p.Dir, "TMPDIR=" + os.TempDir(), "PATH=" + os.Getenv("PATH"), "TENSORTURN_CONTEXT=" + p.Context()}
}

// Run runs a command to its end, at most Patience long.
func (p *Pool) Run(args ...string) Said {
	p.tb.Helper()
	return p.RunFor(Patience, args...)
}

// RunFor is Run for a command that may take as long as limit.
func (p *Pool) RunFor(limit time.Duration, args ...string) Said {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, p.Bin, args...)
	c.Env, c.Dir = append(p.env(), p.Env...), p.Dir
	var out, errw bytes.Buffer
	c.Stdout, c.Stderr = &out, &errw
	err := c.Run()
	if ctx.Err() != nil {
		p.tb.Fatalf("%s did not end within %s", strings.Join(args, " "), limit)
	}
	return Said{Out: out.String(), Err: errw.String(), Code: exitCode(err)}
}

// Must runs a command that has to succeed and gives its output without the last line end.
func (p *Pool) Must(args ...string) string {
	p.tb.Helper()
	s := p.Run(args...)
	if s.Code != 0 {
		p.tb.Fatalf("%s: exit code %d\n%s%s", strings.Join(args, " "), s.Code, s.Out, s.Err)
	}
	return strings.TrimSpace(s.Out)
}

// JSON decodes the standard output of a command that has to succeed, run with --json.
func (p *Pool) JSON(out any, args ...string) {
	p.tb.Helper()
	text := p.Must(append(args, "--json")...)
	if err := json.Unmarshal([]byte(text), out); err != nil {
		p.tb.Fatalf("%s: %v in\n%s", strings.Join(args, " "), err, text)
	}
}
