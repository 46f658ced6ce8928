package identity

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"

	"tensorturn/domain"
)

// Pin is the SHA-256 of a certificate authority's public key (its SubjectPublicKeyInfo). It travels inside the join
// token, so that an agent knows its hub before it says anything secret.
type Pin [sha256.Size]byte

// PinOf gives the pin of a certificate's public key.
func PinOf(c *x509.Certificate) Pin { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

// Equal compares in constant time.
func (p Pin) Equal(q Pin) bool { return subtle.ConstantTimeCompare(p[:], q[:]) == 1 }

// pinLength is the number of base62 characters of 256 bits.
const pinLength = 43

// Token lets machines join: secret and pin in one string of 83 characters,
//
//	ttj_ <30: secret> <43: CA pin> <6: CRC-32 of all before>
//
// There is no form without the pin: it would be open to whoever sits between agent and hub.
type Token struct {
	secret string
	pin    Pin
}

const tokenLength = prefixLength + secretLength + pinLength + crcLength

// NewToken draws a token from rand, which must be a cryptographic source, for the hub whose CA has the given pin.
func NewToken(rand io.Reader, pin Pin) (Token, error) {
	s, err := randomBase62(rand, secretLength)
	if err != nil {
		return Token{}, fmt.Errorf("draw join token: %w", err)
	}
	return Token{secret: s, pin: pin}, nil
}

// ParseToken reads a token as a person pasted it. Its errors tell: not a join token, truncated, too long, mistyped.
func ParseToken(s string) (Token, error) {
	const next = "make a new one with `tensorturn token create` and copy the whole line"
	f := form{op: "read join token", noun: "a join token", prefix: PrefixJoinToken, length: tokenLength, next: next}
	if err := checkForm(s, f); err != nil {
		return Token{}, err
	}
	pin, ok := decodePin(s[prefixLength+secretLength : tokenLength-crcLength])
	if !ok {
		return Token{}, domain.Invalid(f.op, "mistyped: the CA pin is out of range", next)
	}
	return Token{secret: s[prefixLength : prefixLength+secretLength], pin: pin}, nil
}

// Plain is the token itself, to be printed once and sent once, over a connection that was checked against Pin.
func (t Token) Plain() string { return withCRC(PrefixJoinToken + t.secret + encodePin(t.pin)) }

// Pin names the CA that must stand behind the hub's certificate.
func (t Token) Pin() Pin { return t.pin }

// Hash is the SHA-256 of the secret part: all the hub keeps.
func (t Token) Hash() domain.Digest { return hashSecret(t.secret) }

// ID is the token's public name, made from the hash, so that either side finds it without storing the secret.
func (t Token) ID() domain.TokenID { return domain.TokenID("t-" + string(t.Hash()[:16])) }

// String hides the secret from logs and %v.
func (t Token) String() string { return PrefixJoinToken + "(" + string(t.ID()) + ")" }

// GoString hides the secret from %#v.
func (t Token) GoString() string { return t.String() }

func encodePin(p Pin) string {
	n := new(big.Int).SetBytes(p[:])
	base, digit := big.NewInt(62), new(big.Int)
	out := make([]byte, pinLength)
	for i := pinLength - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = alphabet[digit.Int64()]
	}
	return string(out)
}

func decodePin(s string) (Pin, bool) {
	n, base := new(big.Int), big.NewInt(62)
	for i := range len(s) {
		n.Mul(n, base).Add(n, big.NewInt(int64(base62Value(s[i]))))
	}
	var p Pin
	if n.BitLen() > len(p)*8 {
		return Pin{}, false
	}
	n.FillBytes(p[:])
	return p, true
}
