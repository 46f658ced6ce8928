package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"time"
)

// tailLines is how much of the trace a failure shows.
const tailLines = 60

// trace is the story of a world: its hash tells two worlds apart, its last lines explain a failure.
type trace struct {
	sum   hash.Hash
	out   io.Writer // nil for none
	ring  [tailLines]string
	lines int
}

func newTrace(out io.Writer) *trace { return &trace{sum: sha256.New(), out: out} }

// say adds a line.
func (t *trace) say(now time.Duration, who, format string, args ...any) {
	line := fmt.Sprintf("%11.6f %-6s ", now.Seconds(), who) + fmt.Sprintf(format, args...)
	t.ring[t.lines%tailLines] = line
	t.lines++
	io.WriteString(t.sum, line)
	t.sum.Write([]byte{'\n'})
	if t.out != nil {
		fmt.Fprintln(t.out, line)
	}
}

// digest names everything said so far.
func (t *trace) digest() string { return hex.EncodeToString(t.sum.Sum(nil)[:8]) }

// tail gives the newest lines, the oldest first.
func (t *trace) tail() []string {
	var out []string
	for i := max(0, t.lines-tailLines); i < t.lines; i++ {
		out = append(out, t.ring[i%tailLines])
	}
	return out
}
