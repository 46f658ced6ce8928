package identity

import (
	"fmt"
	"io"

	"tensorturn/domain"
	"tensorturn/domain/pool"
)

// Prefixes of API keys, by what they open: a model, or reading. A key of the operator's role has the operator's prefix.
const (
	PrefixModelKey    = "ttk_"
	PrefixObserverKey = "ttv_"
)

// apiKeyLength is that of every API key: prefix, secret and checksum.
const apiKeyLength = prefixLength + secretLength + crcLength

// APIKey is a bearer key whose hash the pool's log holds. Its zero value is no key.
type APIKey struct{ plain string }

// NewAPIKey draws a key for a role from rand, which must be a cryptographic source.
func NewAPIKey(rand io.Reader, role pool.Role) (APIKey, error) {
	prefix, ok := apiKeyPrefix(role)
	if !ok {
		return APIKey{}, domain.Invalid("draw key", fmt.Sprintf("%q is no role", domain.Clip(string(role), 40)), "use model, operator or observer")
	}
	s, err := randomBase62(rand, secretLength)
	if err != nil {
		return APIKey{}, fmt.Errorf("draw key: %w", err)
	}
	return APIKey{plain: withCRC(prefix + s)}, nil
}

func apiKeyPrefix(role pool.Role) (string, bool) {
	switch role {
	case pool.RoleModel:
		return PrefixModelKey, true
	case pool.RoleObserver:
		return PrefixObserverKey, true
	case pool.RoleOperator:
		return PrefixOperatorKey, true
	}
	return "", false
}

// LooksLikeKey reports whether a bearer's secret has the form of an API or operator key; whether anybody knows it is
// another question. It is cheap, and ends most guessing before a hash is computed.
func LooksLikeKey(s string) bool {
	if len(s) != apiKeyLength {
		return false
	}
	switch s[:prefixLength] {
	case PrefixModelKey, PrefixObserverKey, PrefixOperatorKey:
		return true
	}
	return false
}

// HashKey is the SHA-256 of a presented key, by which the hub finds it: whoever cannot find a preimage learns nothing
// from the time that the look-up takes.
func HashKey(s string) domain.Digest { return hashSecret(s) }

// Plain is the key itself, to be shown once.
func (k APIKey) Plain() string { return k.plain }

// Hash is what the hub keeps.
func (k APIKey) Hash() domain.Digest { return hashSecret(k.plain) }

// ID is the key's public name, made from the hash.
func (k APIKey) ID() domain.KeyID { return domain.KeyID("k-" + string(k.Hash()[:16])) }

// Tail is the last four characters, for lists. Of the 178 random bits they leave at least 154 to a guesser.
func (k APIKey) Tail() string { return k.plain[len(k.plain)-4:] }

// String hides the key from logs and %v.
func (k APIKey) String() string { return "(key " + string(k.ID()) + ")" }

// GoString hides the key from %#v.
func (k APIKey) GoString() string { return k.String() }
