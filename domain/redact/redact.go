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

// keyMark stands in the first and the last line of a private key, between dashes.
const keyMark = "PRIVATE KEY"

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

// Pieces of the forms of what is said by name. Any quote may be escaped: JSON stands in the strings of JSON.
const (
	phrase  = `(?:passw(?:or[dt]|d)|passphrase|secret)`                            // names of what may have several words
	keys    = `(?:api|access|secret|private)[ _-]?key(?:[ _-]base)?`               // names of keys
	equals  = `(?:\\*["'])?\s*(?:=>|[=:]|%3[ad])\s*`                               // between name and value
	plain   = `(?:[^\s"',;\\]|\\[^\s"'])`                                          // of a value without quotes
	flagged = `"[^"]{8,}"|'[^']{8,}'|` + plain + `{8,}`                            // a value behind a flag
	inQuote = `(` + phrase + equals + `")(?:[^"\\]|\\.){8,}`                       // several words, the closing quote stays
	inTick  = `(` + phrase + equals + `')(?:[^'\\]|\\.){8,}`                       // the same
	inJSON  = `(` + phrase + equals + `\\+")[^"\\]{8,}`                            // the same within a string
	cookie  = `\b(cookie` + equals + `(?:\\*["'])?)[^\s"'=:;\\]+=[^"'\\]{4,}`      // all of a header
	userURL = `://(?:[^/\s:@]*:[^/\s@]+|[^/\s:@]{16,})@(?:[^/\s@"',;]+@)*`         // a password, or a token for a user; either may hold an @
	service = `hf_|gh[pousr]_|github_pat_|glpat-|dckr_pat_|nvapi-|sk-|xox[abprs]-` // that owners of models use
)

// forms lists what is known of secrets.
func forms() []form {
	exact := func(pattern, by string, marks ...string) form { return form{pattern, by, false, marks} }
	folded := func(pattern, by string, marks ...string) form {
		return form{`(?i)` + pattern, by, true, slices.Concat(marks, []string{kelvin, longS})}
	}
	phrases := []string{"passw", "passphrase", "secret"}
	named := slices.Concat(phrases, []string{"key"})
	return []form{
		exact(`\btt[a-z]_[0-9A-Za-z]{20,}`, Mark, "tt"),                                    // this product's tokens and keys
		exact(`\beyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]{8,}`, Mark, "eyJ"), // JSON web tokens
		exact(`\bS[OAUNCX][A-Z2-7]{54,56}\b`, Mark, "SO", "SA", "SU", "SN", "SC", "SX"),    // seeds of nkeys
		exact(`\b(?:`+service+`)[0-9A-Za-z_-]{20,}`, Mark, "hf_", "gh", "github_pat_", "glpat-", "dckr_pat_", "nvapi-", "sk-", "xox"),
		exact(`\bnpm_[0-9A-Za-z]{36}\b`, Mark, "npm_"),                                                                               // variables of npm begin so too
		exact(`\bA[KS]IA[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{35,}|\bya29\.[0-9A-Za-z_.-]{20,}`, Mark, "AKIA", "ASIA", "AIza", "ya29."), // cloud keys
		folded(`\b(bearer|basic)\s+[0-9a-z._~+/=-]{12,}`, "$1 "+Mark, "bearer", "basic"),                                             // HTTP
		folded(cookie, "${1}"+Mark, "cookie"),
		exact(userURL, "://"+Mark+"@", "://"),
		folded(inQuote+`|`+inTick+`|`+inJSON, "${1}${2}${3}"+Mark, phrases...),
		folded(`((?:`+phrase+`|`+keys+`)`+equals+`(?:\\*["'])?)(?:,?`+plain+`){8,}`, "${1}"+Mark, named...),
		folded(`(token`+equals+`(?:\\*["'])?)`+plain+`{8,}`, "${1}"+Mark, "token"), // without commas: lists of numbers are no tokens
		folded(`(pwd`+equals+`(?:\\*["'])?)[^\s"',;/\\]{8,}`, "${1}"+Mark, "pwd"),  // and not where a shell stands
		folded(`(--[a-z_-]*(?:`+phrase+`|token|`+keys+`)\s+)(?:`+flagged+`)`, "${1}"+Mark, slices.Concat(named, []string{"token"})...),
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
	if begins, ends := keyLine(b); begins || ends {
		l.inside = !ends
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

// keyLine reports whether a private key begins or ends in a line. One that is cut before its first words counts as an end.
func keyLine(b []byte) (begins, ends bool) {
	if !bytes.Contains(b, []byte(keyMark)) || !bytes.Contains(b, []byte("-----")) {
		return false, false
	}
	begins = bytes.Contains(b, []byte("BEGIN "))
	return begins, !begins || bytes.Contains(b, []byte("END "))
}

// suspicious reports whether a text may hold a secret, without making the forms ready.
func suspicious(text []byte) bool {
	lower := lowered(nil, text)
	return bytes.Contains(text, []byte(keyMark)) || slices.ContainsFunc(forms(), func(f form) bool { return f.suspects(text, lower) })
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
