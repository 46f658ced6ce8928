package redact

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever a form matches holds one of its marks, in any case that the form takes: a line that passes the search for marks
// passes with its secret.
func TestMarksMissNothing(t *testing.T) {
	for _, rule := range New().rules {
		text := rapid.StringMatching(rule.form.pattern)
		rapid.Check(t, func(t *rapid.T) {
			line := []byte(text.Draw(t, "line"))
			for i, c := range line {
				if rule.folds && ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z') && rapid.Bool().Draw(t, "other case") {
					line[i] = c ^ 0x20
				}
			}
			if rule.pattern.Match(line) && !rule.suspects(line, lowered(nil, line)) {
				t.Fatalf("%q is matched by %s and holds none of %q", line, rule.pattern, rule.marks)
			}
		})
	}
	for _, line := range []string{"to\u212aen = 0123456789", "pa\u017f\u017fword = 0123456789"} {
		if got := string(New().Line([]byte(line))); got == line {
			t.Errorf("%q passes", line)
		}
	}
}
