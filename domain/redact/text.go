package redact

import "strings"

// Text is a text, such as the reason of a failure or the end of a log, without secrets: each of its lines by the rules of Lines. When
// it begins within a private key, all before the key's last line is gone: nothing else says where the key began.
func Text(s string) string {
	if !suspicious([]byte(s)) {
		return s
	}
	l := New()
	lines := strings.Split(s, "\n")
	lines = lines[within(lines):]
	for i, line := range lines {
		lines[i] = string(l.Line([]byte(line)))
	}
	return strings.Join(lines, "\n")
}

// within is the first line that is not of a private key begun before the text.
func within(lines []string) int {
	for i, line := range lines {
		switch begins, ends := keyLine([]byte(line)); {
		case begins:
			return 0
		case ends:
			return i
		}
	}
	return 0
}
