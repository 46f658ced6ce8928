package identity

import (
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"

	"tensorturn/domain"
)

// replace writes a key file, also in the place of a folder that stands there in its stead and is empty or not.
func (k *Keys) replace(name string, data []byte) error {
	path := filepath.Join(k.dir, name)
	if st, err := os.Lstat(path); err == nil && st.IsDir() {
		if err := os.RemoveAll(path); err != nil {
			return domain.Unavailable("write "+path, "a folder stands in its place", "move it away", err)
		}
	}
	return writeSecret(path, data)
}

func (k *Keys) readHead() error {
	path := filepath.Join(k.dir, fileHeadKey)
	b, err := readKeyFile(path)
	if err != nil {
		return err
	}
	if k.head, err = decodeHead(b); err != nil {
		return damaged(path, err.Error())
	}
	if public, ok := k.headPublic(); ok && public != encoded(k.head) {
		return damaged(path, "it is another key than this hub had, of which "+fileHeadPublic+" tells")
	}
	return nil
}

// headPublic is the public part of the key that signs heads, as it was when it was made; ok is false when that is not known.
func (k *Keys) headPublic() (public string, ok bool) {
	b, err := readSecret(filepath.Join(k.dir, fileHeadPublic))
	public, _, _ = strings.Cut(trim(b), " ")
	return public, err == nil && trim(b) == checked(public)
}

// keepHeadPublic writes down the public part where it is not: in folders of earlier programs, and where it is damaged. Any
// 32 bytes are a private key, so that a flipped bit would give the hub another identity without a word.
func (k *Keys) keepHeadPublic() error {
	if _, ok := k.headPublic(); ok {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(k.dir, fileHeadPublic)); !missing(err) {
		k.mended = append(k.mended, fileHeadPublic+" was damaged and is made anew from "+fileHeadKey)
	}
	return k.replace(fileHeadPublic, encodeHeadPublic(k.head))
}

func encoded(head ed25519.PrivateKey) string {
	return hex.EncodeToString(head.Public().(ed25519.PublicKey))
}

func encodeHeadPublic(head ed25519.PrivateKey) []byte { return []byte(checked(encoded(head)) + "\n") }

// checked is the text with its CRC-32 behind it.
func checked(s string) string { return fmt.Sprintf("%s %08x", s, crc32.ChecksumIEEE([]byte(s))) }

// openOperator reads the operator key and its hash. The key has a checksum and the hash has none: where they do not fit, a key
// that is whole decides, and each is made again from the other or from spare, the key in operator.json.
func (k *Keys) openOperator(spare string) error {
	path := filepath.Join(k.dir, fileAPIHash)
	b, err := readKeyFile(path)
	if domain.KindOf(err) == domain.KindDenied {
		return err
	}
	if err == nil {
		if k.apiHash, err = domain.ParseDigest(trim(b)); err != nil {
			err = damaged(path, "it is not a SHA-256")
		}
	}
	plain, kerr := readSecret(filepath.Join(k.dir, fileAPIKey))
	key, bad := ParseOperatorKey(trim(plain))
	if domain.KindOf(kerr) == domain.KindDenied {
		return kerr
	}
	if whole := kerr == nil && bad == nil; !whole {
		if key, bad = ParseOperatorKey(strings.TrimSpace(spare)); bad != nil || err == nil && !SameDigest(key.Hash(), k.apiHash) {
			return unknownOperator(err, path)
		}
		if !missing(kerr) { // a key that the owner has moved away stays there
			k.mended = append(k.mended, fileAPIKey+" was damaged and is made anew from operator.json")
			if err := k.replace(fileAPIKey, []byte(key.Plain()+"\n")); err != nil {
				return err
			}
		}
	}
	k.apiKey = key.Plain()
	if err == nil && SameDigest(key.Hash(), k.apiHash) {
		return nil
	}
	k.apiHash = key.Hash()
	k.mended = append(k.mended, fileAPIHash+" was damaged and is made anew from the operator key")
	return k.replace(fileAPIHash, []byte(string(k.apiHash)+"\n"))
}

// unknownOperator is the error where no copy of the operator key is whole; none when its hash is, which is all a hub needs.
func unknownOperator(err error, path string) error {
	if err == nil {
		return nil
	}
	if own, ok := err.(*domain.Error); ok {
		own.Next = "write your operator key into " + filepath.Join(filepath.Dir(path), fileAPIKey) + " and start again, or restore the whole key directory from a backup"
	}
	return err
}
