package identity

import (
	"crypto/ed25519"
	"encoding/binary"
	"encoding/hex"

	"tensorturn/domain"
)

// A signed head is 104 bytes: the sequence (8, big endian), the record's SHA-256 (32), and an Ed25519 signature (64) of
// headContext and both. The context keeps a signature made for one thing from being shown for another.
const (
	headContext = "tensorturn signed head 1\n"
	headDigest  = 8
	headBody    = headDigest + 32
	headLength  = headBody + ed25519.SignatureSize
)

// Heads signs positions of the log with the hub's key and opens what agents bring back. It is safe for concurrent use.
type Heads struct{ key ed25519.PrivateKey }

// Heads signs with this hub's own key.
func (k *Keys) Heads() Heads { return Heads{k.head} }

// Sign covers the record at seq, whose digest is a whole SHA-256.
func (h Heads) Sign(seq uint64, digest domain.Digest) []byte {
	raw, err := hex.DecodeString(string(digest))
	domain.Assert(err == nil && len(raw) == headBody-headDigest, "a signed head covers a SHA-256")
	body := append(binary.BigEndian.AppendUint64(make([]byte, 0, headLength), seq), raw...)
	return append(body, ed25519.Sign(h.key, signedBytes(body))...)
}

// Open checks that this hub's key signed the head and gives what it covers. A head of another hub, or one that was
// changed, is domain.KindDenied: it says nothing about this log.
func (h Heads) Open(head []byte) (seq uint64, digest domain.Digest, err error) {
	return OpenHead(h.key.Public().(ed25519.PublicKey), head)
}

// OpenHead is Open for whoever holds the public key alone, such as an agent or an auditor.
func OpenHead(key ed25519.PublicKey, head []byte) (seq uint64, digest domain.Digest, err error) {
	if len(key) != ed25519.PublicKeySize || len(head) != headLength || !ed25519.Verify(key, signedBytes(head[:headBody]), head[headBody:]) {
		return 0, "", domain.Denied("open signed head", "it was not signed by this hub's key", "")
	}
	return binary.BigEndian.Uint64(head), domain.Digest(hex.EncodeToString(head[headDigest:headBody])), nil
}

func signedBytes(body []byte) []byte { return append([]byte(headContext), body...) }
