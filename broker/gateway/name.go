package gateway

import "strings"

// Ids that people read: a word from the name they gave and a random tail, "laptop-7k2mqx".
const (
	maxSlug  = 24
	tailSize = 6 // 30 bits: a clash within one pool is refused by the aggregate and tried again by the caller
)

// readableID makes an id from a name and a fresh id whose end is random.
func readableID(name, fallback, fresh string) string {
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
	return slug + "-" + fresh[len(fresh)-tailSize:]
}
