package feed

import "strings"

// Withheld reports whether facts of the name stay inside: those about what opens doors (join tokens, observers' and
// others' credentials, webhooks with their secrets). That somebody may come in is nobody's business but the owner's.
func Withheld(name string) bool {
	thing, _, _ := strings.Cut(name, ".")
	switch thing {
	case "token", "observer", "webhook", "key":
		return true
	}
	return false
}

// withheldField reports whether fields of the name are left out of the facts that are told: keys that name an identity,
// and digests of secrets. The rule goes by name, so that a fact added later is safe before anybody thinks of the feed.
func withheldField(name string) bool {
	switch name {
	case "nkey", "account", "hash", "secret", "password", "credential":
		return true
	}
	return false
}
