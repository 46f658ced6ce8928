package identity

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nkeys"

	"tensorturn/domain"
)

// File names inside the key directory.
const (
	fileOperatorSeed = "operator.seed"
	fileSystemSeed   = "sys.seed"
	fileHubSeed      = "hub.seed"
	fileServiceSeed  = "svc.seed"
	fileHeadKey      = "head.key"
	fileCACert       = "ca.crt"
	fileCAKey        = "ca.key"
	fileServerCert   = "server.crt"
	fileServerKey    = "server.key"
	fileAPIKey       = "operator.key"    // the plain operator key, for the owner; may be moved away
	fileAPIHash      = "operator.sha256" // what the hub compares with
	dirMachines      = "machines"
)

// Keys is the hub's open key directory. It is safe for concurrent use: only Machine writes, one new file at a time.
type Keys struct {
	dir                     string
	operator, sys, hub, svc nkeys.KeyPair
	head                    ed25519.PrivateKey
	caPEM                   []byte
	pin                     Pin
	server                  tls.Certificate
	apiHash                 domain.Digest
	renewed                 string
}

// Options say how the hub is called. The zero value is a hub for this machine alone.
type Options struct {
	PublicURL string    // https URL under which machines reach the hub, may be empty
	Hostname  string    // this machine's name, may be empty
	CertFile  string    // the owner's certificate chain (leaf first) instead of ours, may be empty
	KeyFile   string    // its key
	Now       time.Time // for validity times
}

// Dir is where the keys live.
func (k *Keys) Dir() string { return k.dir }

// Head signs log heads; its public part travels to agents at enrolment.
func (k *Keys) Head() ed25519.PrivateKey { return k.head }

// CA is the PEM certificate that agents keep as their only root.
func (k *Keys) CA() []byte { return append([]byte(nil), k.caPEM...) }

// Pin is the pin that join tokens carry.
func (k *Keys) Pin() Pin { return k.pin }

// ServerCertificate is what the HTTPS front presents.
func (k *Keys) ServerCertificate() tls.Certificate { return k.server }

// Renewed says in words why Open issued a new server certificate, "" when it did not.
func (k *Keys) Renewed() string { return k.renewed }

// OperatorKeyFile is where Create left the plain operator key.
func (k *Keys) OperatorKeyFile() string { return filepath.Join(k.dir, fileAPIKey) }

// IsOperator reports whether given is the operator key, in constant time.
func (k *Keys) IsOperator(given string) bool {
	return SameDigest(hashSecret(given), k.apiHash)
}

// Open reads the directory that Create made. A missing or damaged file is a domain.KindIntegrity error that names it; a
// missing directory is domain.KindNotFound. It issues a new server certificate when the old one has fewer than 30 days
// left or does not name PublicURL's host.
func Open(dir string, o Options) (*Keys, error) {
	if _, err := os.Stat(dir); err != nil {
		if missing(err) {
			return nil, domain.NotFound("open keys", dir+" does not exist", "start the hub once to make its keys")
		}
		return nil, domain.Unavailable("open keys", "the directory cannot be read", "fix its owner or mode", err)
	}
	k := &Keys{dir: dir}
	if err := k.readSeeds(); err != nil {
		return nil, err
	}
	if err := k.readHead(); err != nil {
		return nil, err
	}
	if err := k.readAPIHash(); err != nil {
		return nil, err
	}
	if err := k.openTLS(o); err != nil {
		return nil, err
	}
	return k, nil
}

// OpenOrCreate opens the directory, or makes it on the very first start; created tells which.
func OpenOrCreate(dir string, o Options) (k *Keys, created bool, err error) {
	k, err = Open(dir, o)
	if domain.KindOf(err) != domain.KindNotFound {
		return k, false, err
	}
	k, err = Create(dir, o)
	return k, err == nil, err
}

func (k *Keys) readSeeds() error {
	for _, s := range []struct {
		file   string
		prefix nkeys.PrefixByte
		into   *nkeys.KeyPair
	}{
		{fileOperatorSeed, nkeys.PrefixByteOperator, &k.operator},
		{fileSystemSeed, nkeys.PrefixByteAccount, &k.sys},
		{fileHubSeed, nkeys.PrefixByteAccount, &k.hub},
		{fileServiceSeed, nkeys.PrefixByteAccount, &k.svc},
	} {
		kp, err := readSeed(filepath.Join(k.dir, s.file), s.prefix)
		if err != nil {
			return err
		}
		*s.into = kp
	}
	return nil
}

func (k *Keys) readHead() error {
	b, err := readKeyFile(filepath.Join(k.dir, fileHeadKey))
	if err != nil {
		return err
	}
	if k.head, err = decodeHead(b); err != nil {
		return damaged(filepath.Join(k.dir, fileHeadKey), err.Error())
	}
	return nil
}

func (k *Keys) readAPIHash() error {
	path := filepath.Join(k.dir, fileAPIHash)
	b, err := readKeyFile(path)
	if err != nil {
		return err
	}
	if k.apiHash, err = domain.ParseDigest(trim(b)); err != nil {
		return damaged(path, "it is not a SHA-256")
	}
	return nil
}

// openTLS reads the CA, then the owner's certificate or ours.
func (k *Keys) openTLS(o Options) error {
	caCert, err := readKeyFile(filepath.Join(k.dir, fileCACert))
	if err != nil {
		return err
	}
	caKey, err := readKeyFile(filepath.Join(k.dir, fileCAKey))
	if err != nil {
		return err
	}
	ca, _, err := parsePair(caCert, caKey)
	if err != nil {
		return damaged(filepath.Join(k.dir, fileCACert), "it does not fit "+fileCAKey+": "+err.Error())
	}
	if o.CertFile != "" || o.KeyFile != "" {
		return k.openOwners(o)
	}
	k.caPEM, k.pin = caCert, PinOf(ca)
	return k.openServer(ca, caCert, caKey, o)
}

func (k *Keys) openOwners(o Options) error {
	cert, err := readBounded(o.CertFile)
	if err != nil {
		return domain.Invalid("read the owner's certificate", err.Error(), "give both --tls-cert and --tls-key")
	}
	key, err := readBounded(o.KeyFile)
	if err != nil {
		return domain.Invalid("read the owner's key", err.Error(), "give both --tls-cert and --tls-key")
	}
	if k.server, err = ownersChain(cert, key, o.Now); err != nil {
		return err
	}
	top, err := lastCert(cert)
	if err != nil {
		return domain.Invalid("read the owner's certificate", err.Error(), "")
	}
	k.caPEM, k.pin = encodeCert(top.Raw), PinOf(top)
	return nil
}

func (k *Keys) openServer(ca *x509.Certificate, caCert, caKey []byte, o Options) error {
	names, err := serverNames(o.PublicURL, o.Hostname)
	if err != nil {
		return err
	}
	path := filepath.Join(k.dir, fileServerCert)
	cert, err := readKeyFile(path)
	if err != nil {
		return err
	}
	key, err := readKeyFile(filepath.Join(k.dir, fileServerKey))
	if err != nil {
		return err
	}
	k.server, err = tls.X509KeyPair(cert, key)
	switch {
	case err != nil:
		// A crash between the two files of a renewal leaves a pair that does not fit; nothing is lost by a new one.
		k.renewed = "certificate and key did not fit"
	case k.server.Leaf.CheckSignatureFrom(ca) != nil:
		k.renewed = "it was issued by another CA"
	default:
		k.renewed = stale(k.server.Leaf, names, o.Now)
	}
	if k.renewed == "" {
		return nil
	}
	if cert, key, err = newServer(caCert, caKey, names, o.Now); err != nil {
		return err
	}
	if err := writeSecret(filepath.Join(k.dir, fileServerKey), key); err != nil {
		return err
	}
	if err := writeSecret(path, cert); err != nil {
		return err
	}
	if k.server, err = tls.X509KeyPair(cert, key); err != nil {
		return fmt.Errorf("read the certificate just issued: %w", err)
	}
	return nil
}
