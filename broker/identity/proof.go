package identity

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"tensorturn/domain"
)

// Audience says what a proof is for; a proof for one thing is none for another.
type Audience string

// The audiences.
const (
	AudienceBlobs Audience = "blobs" // HTTPS parts
	AudienceRenew Audience = "renew" // a fresh credential after the old one expired
	AudienceEnrol Audience = "enrol" // possession of the key at enrolment
	AudienceSelf  Audience = "self"  // what the hub knows of this machine
)

// Limits of a proof.
const (
	ProofLife = 5 * time.Minute
	ProofSkew = 2 * time.Minute // how far a machine's clock may be off
	maxProof  = 2 << 10         // bytes; ours are below 600
)

// proofHeader is the only header we accept. jwt/v2 also reads an older form, in which a token that its sender signed
// himself can make the decoder write to a nil map and end the process.
var proofHeader = base64.RawURLEncoding.EncodeToString([]byte(`{"typ":"JWT","alg":"`+jwt.AlgorithmNkey+`"}`)) + "."

// SignProof makes a token of at most ProofLife that shows possession of kp's seed.
func SignProof(kp nkeys.KeyPair, a Audience, m domain.MachineID, now time.Time) (string, error) {
	c := jwt.NewGenericClaims(public(kp))
	c.Audience, c.Name = string(a), string(m)
	c.Expires = now.Add(ProofLife).Unix()
	tok, err := c.Encode(kp)
	if err != nil {
		return "", fmt.Errorf("sign proof of key: %w", err)
	}
	return tok, nil
}

// VerifyProof returns the public nkey that signed the token. Whether that key belongs to a machine is the caller's
// question; the machine's name inside is not evidence.
func VerifyProof(tok string, a Audience, now time.Time) (nkey string, err error) {
	const op, next = "check proof of key", "sign a new one"
	if len(tok) > maxProof || !strings.HasPrefix(tok, proofHeader) {
		return "", domain.Denied(op, "this is not a proof", next)
	}
	c, err := jwt.DecodeGeneric(tok)
	if err != nil {
		return "", domain.Denied(op, "the signature or the form is wrong", next)
	}
	switch end := time.Unix(c.Expires, 0); {
	case !nkeys.IsValidPublicUserKey(c.Issuer) || c.Subject != c.Issuer:
		return "", domain.Denied(op, "it is not signed by a machine's own key", next)
	case c.Audience != string(a):
		return "", domain.Denied(op, fmt.Sprintf("it is for another purpose than %q", a), next)
	case now.After(end.Add(ProofSkew)):
		return "", domain.Denied(op, "it has expired", "sign a new one; if it is new, set this machine's clock")
	case end.After(now.Add(ProofLife + ProofSkew)):
		return "", domain.Denied(op, "it lives too long", "set this machine's clock: it runs ahead of the hub's")
	}
	return c.Issuer, nil
}

// SignBlobToken makes the bearer token for /blobs.
func SignBlobToken(kp nkeys.KeyPair, m domain.MachineID, now time.Time) (string, error) {
	return SignProof(kp, AudienceBlobs, m, now)
}

// VerifyBlobToken returns the public nkey behind a bearer token for /blobs.
func VerifyBlobToken(tok string, now time.Time) (nkey string, err error) {
	return VerifyProof(tok, AudienceBlobs, now)
}
