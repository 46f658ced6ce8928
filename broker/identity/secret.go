package identity

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"

	"tensorturn/domain"
)

// Shape of secrets (the form scanners for leaked keys know): a prefix that names the kind, 30 base62 characters (178
// random bits, so a plain SHA-256 at rest is enough), and the CRC-32 of all before it in 6 base62 characters, so that a
// typing error is told without asking the hub.
const (
	PrefixOperatorKey = "tto_"
	PrefixJoinToken   = "ttj_"

	secretLength = 30
	crcLength    = 6 // 62^6 > 2^32
	prefixLength = 4
	alphabet     = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// OperatorKey is the bearer key of a person or program that runs the pool. Its zero value is no key.
type OperatorKey struct{ plain string }

// NewOperatorKey draws a key from rand, which must be a cryptographic source.
func NewOperatorKey(rand io.Reader) (OperatorKey, error) {
	s, err := randomBase62(rand, secretLength)
	if err != nil {
		return OperatorKey{}, fmt.Errorf("draw operator key: %w", err)
	}
	return OperatorKey{plain: withCRC(PrefixOperatorKey + s)}, nil
}

// ParseOperatorKey checks form and checksum only. A key that parses may still be unknown to the hub.
func ParseOperatorKey(s string) (OperatorKey, error) {
	err := checkForm(s, form{
		op: "read operator key", noun: "an operator key", prefix: PrefixOperatorKey,
		length: prefixLength + secretLength + crcLength,
		next:   "copy the whole key from the hub's keys/operator.key",
	})
	if err != nil {
		return OperatorKey{}, err
	}
	return OperatorKey{plain: s}, nil
}

// Plain is the key itself: for the file of mode 0600 and the Authorization header, nowhere else.
func (k OperatorKey) Plain() string { return k.plain }

// String hides the key from logs and %v.
func (k OperatorKey) String() string { return PrefixOperatorKey + "..." }

// GoString hides the key from %#v.
func (k OperatorKey) GoString() string { return k.String() }

// Hash is what the hub keeps.
func (k OperatorKey) Hash() domain.Digest { return hashSecret(k.plain) }

// SameDigest compares two digests in constant time. Hashing before the comparison already keeps the secret's bytes out
// of the timing; this keeps the hash's out too.
func SameDigest(a, b domain.Digest) bool {
	return len(a) > 0 && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

func hashSecret(s string) domain.Digest {
	h := sha256.Sum256([]byte(s))
	return domain.Digest(hex.EncodeToString(h[:]))
}

// randomBase62 draws n characters without bias: bytes of 248 and more, which would favour the first eight, are thrown away.
func randomBase62(rand io.Reader, n int) (string, error) {
	const fair = 248 // 4 × 62
	out := make([]byte, 0, n)
	buf := make([]byte, n)
	for len(out) < n {
		if _, err := io.ReadFull(rand, buf); err != nil {
			return "", err
		}
		for _, b := range buf {
			if b < fair && len(out) < n {
				out = append(out, alphabet[b%62])
			}
		}
	}
	return string(out), nil
}

func withCRC(s string) string {
	sum := crc32.ChecksumIEEE([]byte(s))
	var c [crcLength]byte
	for i := crcLength - 1; i >= 0; i-- {
		c[i] = alphabet[sum%62]
		sum /= 62
	}
	return s + string(c[:])
}

type form struct {
	op, noun, prefix, next string
	length                 int
}

// checkForm says which of the things that go wrong with a copied secret went wrong. It never repeats the secret.
func checkForm(s string, f form) error {
	switch {
	case len(s) < prefixLength || s[:prefixLength] != f.prefix:
		return domain.Invalid(f.op, fmt.Sprintf("this is not %s (they begin with %s)%s", f.noun, f.prefix, otherKind(s)), f.next)
	case len(s) < f.length:
		return domain.Invalid(f.op, fmt.Sprintf("truncated: %d of %d characters", len(s), f.length), f.next)
	case len(s) > f.length:
		return domain.Invalid(f.op, fmt.Sprintf("too long: %d characters, %d expected", len(s), f.length), f.next)
	}
	for i := prefixLength; i < len(s); i++ {
		if base62Value(s[i]) < 0 {
			return domain.Invalid(f.op, fmt.Sprintf("mistyped: character %d is not a letter or digit", i+1), f.next)
		}
	}
	if withCRC(s[:f.length-crcLength]) != s {
		return domain.Invalid(f.op, "mistyped: the checksum does not match", f.next)
	}
	return nil
}

func otherKind(s string) string {
	if len(s) < prefixLength {
		return ""
	}
	switch s[:prefixLength] {
	case PrefixOperatorKey:
		return "; it is an operator key"
	case PrefixJoinToken:
		return "; it is a join token"
	}
	return ""
}

func base62Value(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'Z':
		return int(c-'A') + 10
	case c >= 'a' && c <= 'z':
		return int(c-'a') + 36
	}
	return -1
}
