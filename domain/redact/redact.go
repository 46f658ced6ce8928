// Package redact takes what looks like a secret out of text that leaves a machine, what owners' programs print, why something
// failed, and what a support archive holds, and out of what the hub records of a machine's words. It knows the forms of
// secrets, not their values, and never keeps what it has seen. Agent, hub and `tensorturn doctor` call it.
package redact

import (
	"bytes"
	"regexp"
)

// Mark stands where a secret was.
const Mark = "[redacted]"

// Lines takes secrets out of a text line by line. It remembers only whether it is within a private key, so each text has its
// own. Not safe for concurrent use.
type Lines struct {
	rules  []redaction
	inside bool // between the first and the last line of a private key
}

type redaction struct {
	form *regexp.Regexp
	by   []byte
}

// marks are texts without which no rule can match: most lines hold none of them, and cost no more than this search.
var marks = [...]string{"tt", "eyJ", "hf_", "gh", "sk-", "AKIA", "xox", "earer", "asic", "EARER", "assw", "ASSW", "ecret", "ECRET", "oken", "OKEN", "ey=", "ey:", "ey\"", "EY=", "EY:", "://", "PRIVATE KEY", "SU", "SA", "SO", "SN", "SC", "SX"}

// New begins a text.
func New() *Lines {
	rule := func(form, by string) redaction { return redaction{regexp.MustCompile(form), []byte(by)} }
	return &Lines{rules: []redaction{
		rule(`\btt[a-z]_[0-9A-Za-z]{20,}`, "[redacted]"),                                                                       // this product's tokens and keys
		rule(`\beyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]{8,}`, "[redacted]"),                                     // JSON web tokens
		rule(`\bS[OAUNCX][A-Z2-7]{54,56}\b`, "[redacted]"),                                                                     // seeds of nkeys
		rule(`\b(?:hf_|gh[pousr]_|github_pat_|sk-|xox[abprs]-)[0-9A-Za-z_-]{20,}`, "[redacted]"),                               // services that owners of models use
		rule(`\bAKIA[0-9A-Z]{16}\b`, "[redacted]"),                                                                             // cloud keys
		rule(`(?i)\b(bearer|basic)\s+[0-9A-Za-z._~+/=-]{12,}`, "$1 [redacted]"),                                                // HTTP
		rule(`://[^/\s:@]+:[^/\s@]+@`, "://[redacted]@"),                                                                       // URLs with a password
		rule(`(?i)((?:password|passwd|secret|token|api_?key|access_?key)["']?\s*[=:]\s*["']?)[^\s"',;]{8,}`, "${1}[redacted]"), // said by name
	}}
}

// Line gives the line without secrets; the line itself when it holds none.
func (r *Lines) Line(b []byte) []byte {
	if !suspicious(b) {
		if r.inside {
			return []byte(Mark)
		}
		return b
	}
	if bytes.Contains(b, []byte("PRIVATE KEY-----")) {
		r.inside = bytes.Contains(b, []byte("BEGIN ")) && !bytes.Contains(b, []byte("END "))
		return []byte(Mark)
	}
	if r.inside {
		return []byte(Mark)
	}
	for _, rule := range r.rules {
		b = rule.form.ReplaceAll(b, rule.by)
	}
	return b
}

func suspicious(b []byte) bool {
	for _, mark := range marks {
		if bytes.Contains(b, []byte(mark)) {
			return true
		}
	}
	return false
}
