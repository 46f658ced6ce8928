package identity

import (
	"crypto/hkdf"
	"crypto/sha256"

	"tensorturn/domain"
)

// RepeatSecret is what secrets that a caller may ask for twice follow from: a join token that was made under an idempotency
// key is told again, and stored nowhere. It follows from the hub's signing key, which never leaves the hub either, and tells
// nothing of it.
func (k *Keys) RepeatSecret() []byte {
	b, err := hkdf.Key(sha256.New, k.head.Seed(), nil, "tensorturn repeated requests", sha256.Size)
	domain.Assert(err == nil, "HKDF gives one hash's length")
	return b
}
