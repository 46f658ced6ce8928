package redact

import "strings"

// Text is a short text, such as the reason of a failure, without secrets: each of its lines by the rules of Lines.
func Text(s string) string {
	if !suspicious([]byte(s)) {
		return s
	}
	l := New()
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = string(l.Line([]byte(line)))
	}
	return strings.Join(lines, "\n")
}
