package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nkeys"

	"tensorturn/domain"
)

// Create makes every key of a new hub. All files are written to a directory beside dir, synced, and moved into place by
// one rename: a crash leaves either nothing or everything. A dir that already holds something is domain.KindConflict.
func Create(dir string, o Options) (*Keys, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, domain.Unavailable("create keys", "the hub's directory cannot be made", "choose another --dir or fix its owner", err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".new-*") // 0700
	if err != nil {
		return nil, domain.Unavailable("create keys", "the hub's directory cannot be written", "choose another --dir or fix its owner", err)
	}
	defer os.RemoveAll(tmp) // no longer there when all went well
	if err := fill(tmp, o); err != nil {
		return nil, err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return nil, domain.Conflict("create keys", dir+" already holds something: "+err.Error(),
			"start the hub on it as it is, or give an empty --dir")
	}
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return nil, fmt.Errorf("sync %s: %w", filepath.Dir(dir), err)
	}
	return Open(dir, o)
}

// fill writes the files of a new directory.
func fill(dir string, o Options) error {
	files, err := newFiles(o)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := writeSecret(filepath.Join(dir, f.name), f.data); err != nil {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(dir, dirMachines), 0o700); err != nil {
		return fmt.Errorf("create keys: %w", err)
	}
	return syncDir(dir)
}

type file struct {
	name string
	data []byte
}

func newFiles(o Options) ([]file, error) {
	var out []file
	for _, s := range []struct {
		name   string
		prefix nkeys.PrefixByte
	}{
		{fileOperatorSeed, nkeys.PrefixByteOperator},
		{fileSystemSeed, nkeys.PrefixByteAccount},
		{fileHubSeed, nkeys.PrefixByteAccount},
		{fileServiceSeed, nkeys.PrefixByteAccount},
	} {
		seed, err := newSeed(s.prefix)
		if err != nil {
			return nil, err
		}
		out = append(out, file{s.name, seed})
	}
	_, head, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make head key: %w", err)
	}
	headPEM, err := encodeKey(head)
	if err != nil {
		return nil, err
	}
	api, err := NewOperatorKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	out = append(out, file{fileHeadKey, headPEM}, file{fileHeadPublic, encodeHeadPublic(head)},
		file{fileAPIKey, []byte(api.Plain() + "\n")}, file{fileAPIHash, []byte(string(api.Hash()) + "\n")})
	certs, err := newCertFiles(o)
	return append(out, certs...), err
}

func newCertFiles(o Options) ([]file, error) {
	names, err := serverNames(o.PublicURL, o.Hostname)
	if err != nil {
		return nil, err
	}
	ca, caKey, err := newCA(o.Now)
	if err != nil {
		return nil, err
	}
	cert, key, err := newServer(ca, caKey, names, o.Now)
	if err != nil {
		return nil, err
	}
	return []file{{fileCACert, ca}, {fileCAKey, caKey}, {fileServerCert, cert}, {fileServerKey, key}}, nil
}

func newSeed(p nkeys.PrefixByte) ([]byte, error) {
	kp, err := nkeys.CreatePair(p)
	if err != nil {
		return nil, fmt.Errorf("make %s key: %w", p, err)
	}
	seed, err := kp.Seed()
	if err != nil {
		return nil, fmt.Errorf("make %s key: %w", p, err)
	}
	return append(seed, '\n'), nil
}

// readSeed reads an nkey seed and checks its kind.
func readSeed(path string, want nkeys.PrefixByte) (nkeys.KeyPair, error) {
	b, err := readKeyFile(path)
	if err != nil {
		return nil, err
	}
	seed := []byte(trim(b))
	if got, _, err := nkeys.DecodeSeed(seed); err != nil || got != want {
		return nil, damaged(path, "it does not hold the seed of an "+want.String()+" nkey")
	}
	kp, err := nkeys.FromSeed(seed)
	if err != nil {
		return nil, damaged(path, "its seed cannot be used")
	}
	return kp, nil
}

// readKeyFile reads one file of the key directory; a missing one is damage, since Create writes all or nothing.
func readKeyFile(path string) ([]byte, error) {
	b, err := readSecret(path)
	switch own := (*domain.Error)(nil); {
	case missing(err):
		return nil, damaged(path, "it is missing")
	case err != nil && !errors.As(err, &own): // a folder in its place, a disk that cannot read it
		return nil, damaged(path, "it cannot be read: "+cause(err))
	}
	return b, err
}

func damaged(path, why string) error {
	return domain.Integrity("open keys", path+": "+why,
		"restore the whole key directory from a backup; the hub's machines know only these keys")
}

func decodeHead(b []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	ed, ok := k.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("it is a %T, not an Ed25519 key", k)
	}
	return ed, nil
}

func trim(b []byte) string { return strings.TrimSpace(string(b)) }
