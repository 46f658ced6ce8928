package domain

import "strings"

// Tail keeps the last Most bytes that are written to it: the end of a child's words is where it says why. It is a Writer alone, since a
// promoted ReadFrom would be what io.Copy calls, past the bound. Not safe for concurrent use.
type Tail struct {
	Most int // bytes; nothing is kept of 0
	kept []byte
}

// Write implements io.Writer. Memory stays below twice Most, and each byte is moved once for every Most bytes that come.
func (t *Tail) Write(p []byte) (int, error) {
	n := len(p)
	p = p[max(0, n-t.Most):]
	if len(t.kept)+len(p) > 2*t.Most {
		from := len(t.kept) - min(len(t.kept), t.Most-len(p))
		t.kept = t.kept[:copy(t.kept, t.kept[from:])]
	}
	t.kept = append(t.kept, p...)
	return n, nil
}

// String is what is kept.
func (t *Tail) String() string { return string(t.kept[max(0, len(t.kept)-t.Most):]) }

// LastLine is the last line of what is kept that is not empty, or else what is said otherwise.
func (t *Tail) LastLine(otherwise string) string {
	text := strings.TrimSpace(t.String())
	if text == "" {
		return otherwise
	}
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}
