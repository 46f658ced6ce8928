// Package redact takes what looks like a secret out of text that leaves a machine, what owners' programs print, why something
// failed, and what a support archive holds, and out of what the hub records of a machine's words. It knows the forms of
// secrets, not their values, and never keeps what it has seen. Agent, hub and `tensorturn doctor` call it.
package redact

import (
	"bytes"
	"regexp"
	"slices"
)

// Mark stands where a secret was.
const Mark = "[redacted]"

// keyLine stands in the first and the last line of a private key.
const keyLine = "PRIVATE KEY-----"

// Forms that do not heed case take these for a k and an s; ASCII's lower case does not.
const (
	kelvin = "\u212a"
	longS  = "\u017f"
)

// Lines takes secrets out of a text line by line. It remembers only whether it is within a private key, so each text has its
// own. Not safe for concurrent use.
type Lines struct {
	rules  []rule
	inside bool   // between the first and the last line of a private key
	lower  []byte // the line in lower case, kept for its memory
}

// rule is a form made ready.
type rule struct {
	form
	pattern *regexp.Regexp
	by      []byte
}

// form is one form of secret.
type form struct {
	pattern string
	by      string
	folds   bool     // letter case does not count: the marks are looked for in the line in lower case
	marks   []string // texts without one of which the pattern cannot match: most lines hold none, and cost no more than this search
}

// forms lists what is known of secrets.
func forms() []form {
	exact := func(pattern, by string, marks ...string) form { return form{pattern, by, false, marks} }
	folded := func(pattern, by string, marks ...string) form {
		return form{`(?i)` + pattern, by, true, append(marks, kelvin, longS)}
	}
	return []form{
		exact(`\btt[a-z]_[0-9A-Za-z]{20,}`, Mark, "tt"),                                                  // this product's tokens and keys
		exact(`\beyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]{8,}`, Mark, "eyJ"),               // JSON web tokens
		exact(`\bS[OAUNCX][A-Z2-7]{54,56}\b`, Mark, "SO", "SA", "SU", "SN", "SC", "SX"),                  // seeds of nkeys
		exact(`\b(?:hf_|gh[pousr]_|sk-|xox[abprs]-)[0-9A-Za-z_-]{20,}`, Mark, "hf_", "gh", "sk-", "xox"), // services that owners of models use
		exact(`\bgithub_pat_[0-9A-Za-z_-]{20,}`, Mark, "github_pat_"),
		exact(`\bAKIA[0-9A-Z]{16}\b`, Mark, "AKIA"),                                      // cloud keys
		folded(`\b(bearer|basic)\s+[0-9a-z._~+/=-]{12,}`, "$1 "+Mark, "bearer", "basic"), // HTTP
		exact(`://[^/\s:@]*:[^/\s@]+@`, "://"+Mark+"@", "://"),                           // URLs with a password, some without a user
		folded(`((?:passw(?:or)?d|passphrase|secret|token|(?:api|access|secret|private)[ _-]?key)["']?\s*[=:]\s*["']?)[^\s"',;]{8,}`,
			"${1}"+Mark, "passw", "passphrase", "secret", "token", "key"), // said by name
	}
}

// New begins a text.
func New() *Lines {
	l := &Lines{}
	for _, f := range forms() {
		l.rules = append(l.rules, rule{form: f, pattern: regexp.MustCompile(f.pattern), by: []byte(f.by)})
	}
	return l
}

// Line gives the line without secrets; the line itself when it holds none.
func (l *Lines) Line(b []byte) []byte {
	if bytes.Contains(b, []byte(keyLine)) {
		l.inside = bytes.Contains(b, []byte("BEGIN ")) && !bytes.Contains(b, []byte("END "))
		return []byte(Mark)
	}
	if l.inside {
		return []byte(Mark)
	}
	l.lower = lowered(l.lower[:0], b)
	for i := range l.rules {
		if r := &l.rules[i]; r.suspects(b, l.lower) {
			b = r.pattern.ReplaceAll(b, r.by)
		}
	}
	return b
}

// suspicious reports whether a text may hold a secret, without making the forms ready.
func suspicious(text []byte) bool {
	lower := lowered(nil, text)
	return bytes.Contains(text, []byte(keyLine)) || slices.ContainsFunc(forms(), func(f form) bool { return f.suspects(text, lower) })
}

// suspects reports whether the pattern may match a line; lower is the line by lowered.
func (f *form) suspects(line, lower []byte) bool {
	if f.folds {
		line = lower
	}
	return slices.ContainsFunc(f.marks, func(mark string) bool { return bytes.Contains(line, []byte(mark)) })
}

// lowered appends the line with the letters of ASCII in lower case.
func lowered(to, line []byte) []byte {
	for _, c := range line {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		to = append(to, c)
	}
	return to
}
