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

// Exports signs what leaves this hub with its key. It is safe for concurrent use.
type Exports struct{ Heads }

// Exports signs with this hub's own key.
func (k *Keys) Exports() Exports { return Exports{k.Heads()} }

// Export signs a statement; its context is part of what it is given (projections/archive).
func (e Exports) Export(body []byte) []byte { return ed25519.Sign(e.key, body) }

// snapshotContext begins what is signed of a snapshot.
const snapshotContext = "tensorturn snapshot 1\n"

// Snapshots signs frozen state with the hub's key, so that no other hub's is read. It is safe for concurrent use.
type Snapshots struct{ key ed25519.PrivateKey }

// Snapshots signs with this hub's own key.
func (k *Keys) Snapshots() Snapshots { return Snapshots{k.head} }

// Sign signs a snapshot's header.
func (s Snapshots) Sign(body []byte) []byte {
	return ed25519.Sign(s.key, append([]byte(snapshotContext), body...))
}

// Signed reports whether this hub signed it.
func (s Snapshots) Signed(body, signature []byte) bool {
	return ed25519.Verify(s.key.Public().(ed25519.PublicKey), append([]byte(snapshotContext), body...), signature)
}

func signedBytes(body []byte) []byte { return append([]byte(headContext), body...) }

// HeadKey reads the public key of a hub's heads from its key directory and changes nothing there.
func HeadKey(dir string) (ed25519.PublicKey, error) {
	k := &Keys{dir: dir}
	if err := k.readHead(); err != nil {
		return nil, err
	}
	return k.head.Public().(ed25519.PublicKey), nil
}
