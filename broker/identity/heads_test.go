package identity_test

import (
	"crypto/ed25519"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tensorturn/broker/identity"
	"tensorturn/broker/wire"
	"tensorturn/domain"
)

func headKeys(t *testing.T) *identity.Keys {
	t.Helper()
	k, err := identity.Create(filepath.Join(t.TempDir(), "keys"), identity.Options{Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestHeads(t *testing.T) {
	k := headKeys(t)
	const seq = 1<<40 + 256
	digest := domain.Digest(strings.Repeat("5a", 32))
	head := k.Heads().Sign(seq, digest)
	if len(head) > wire.MaxHeadBytes {
		t.Errorf("a head has %d bytes, the wire takes %d", len(head), wire.MaxHeadBytes)
	}
	for name, open := range map[string]func([]byte) (uint64, domain.Digest, error){
		"hub": k.Heads().Open,
		"agent": func(b []byte) (uint64, domain.Digest, error) {
			return identity.OpenHead(k.Head().Public().(ed25519.PublicKey), b)
		},
	} {
		if s, d, err := open(head); err != nil || s != seq || d != digest {
			t.Errorf("%s opens %d %s %v", name, s, d, err)
		}
	}
	if again := k.Heads().Sign(seq, digest); string(again) != string(head) {
		t.Error("signing is not the same every time: agents would be sent the same head for ever")
	}
}

// Every bit counts, and so does the key.
func TestForgedHeadsAreRefused(t *testing.T) {
	k := headKeys(t)
	head := k.Heads().Sign(256, domain.Digest(strings.Repeat("0", 64)))
	for i := range 8 * len(head) {
		forged := append([]byte(nil), head...)
		forged[i/8] ^= 1 << (i % 8)
		if _, _, err := k.Heads().Open(forged); domain.KindOf(err) != domain.KindDenied {
			t.Fatalf("bit %d flipped: %v", i, err)
		}
	}
	bare := append(append([]byte(nil), head[:40]...), ed25519.Sign(k.Head(), head[:40])...)
	for name, forged := range map[string][]byte{"empty": nil, "short": head[:len(head)-1], "long": append(head[:len(head):len(head)], 0), "another purpose": bare} {
		if _, _, err := k.Heads().Open(forged); domain.KindOf(err) != domain.KindDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := headKeys(t).Heads().Open(head); domain.KindOf(err) != domain.KindDenied {
		t.Errorf("another hub's: %v", err)
	}
	if _, _, err := identity.OpenHead(nil, head); domain.KindOf(err) != domain.KindDenied {
		t.Errorf("no key: %v", err)
	}
}

func TestHeadOfNoDigestIsABrokenPromise(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a head of half a digest was signed")
		}
	}()
	headKeys(t).Heads().Sign(1, "5a")
}
