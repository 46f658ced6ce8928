package gateway

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// Ids that people read: a word from the name they gave and a random tail, "laptop-7k2mqx".
const (
	maxSlug  = 24
	tailSize = 6  // 30 bits: enough for one pool as a rule
	longTail = 12 // where a machine's short tail is taken
)

// tailOf is the random end of a fresh id.
func tailOf(fresh string) string { return fresh[len(fresh)-tailSize:] }

// keyTail is a tail made from a machine's public key, so that the same machine asking twice at once is one machine.
func keyTail(nkey string, size int) string {
	h := sha256.Sum256([]byte(nkey))
	return strings.ToLower(base32.StdEncoding.EncodeToString(h[:]))[:size]
}

// readableID makes an id from a name and a tail.
func readableID(name, fallback, tail string) string {
	slug := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		case r == '-' || r == '_' || r == ' ' || r == '.':
			return '-'
		}
		return -1
	}, name)
	slug = strings.Trim(slug[:min(len(slug), maxSlug)], "-")
	if slug == "" {
		slug = fallback
	}
	return slug + "-" + tail
}
