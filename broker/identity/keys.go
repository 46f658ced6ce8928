package identity

import (
	"bytes"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	fileHeadPublic   = "head.pub" // its public part with a checksum: the key itself has none
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
	apiKey                  string // plain, "" where the owner has taken it away
	renewed                 string
	mended                  []string
}

// Options say how the hub is called. The zero value is a hub for this machine alone.
type Options struct {
	PublicURL string    // https URL under which machines reach the hub, may be empty
	Hostname  string    // this machine's name, may be empty
	CertFile  string    // the owner's certificate chain (leaf first) instead of ours, may be empty
	KeyFile   string    // its key
	Now       time.Time // for validity times
	Operator  string    // the operator key as operator.json has it, in case that our own copies of it are damaged; may be empty
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

// Mended says in words which files Open found damaged and has made again from others, in the order in which it reads them.
func (k *Keys) Mended() []string { return slices.Clone(k.mended) }

// OperatorKey is the plain operator key, "" where the owner has taken it away.
func (k *Keys) OperatorKey() string { return k.apiKey }

// OperatorKeyFile is where Create left the plain operator key.
func (k *Keys) OperatorKeyFile() string { return filepath.Join(k.dir, fileAPIKey) }

// IsOperator reports whether given is the operator key, in constant time.
func (k *Keys) IsOperator(given string) bool {
	return SameDigest(hashSecret(given), k.apiHash)
}

// Open reads the directory that Create made. A missing or damaged file is a domain.KindIntegrity error that names it; a
// missing directory is domain.KindNotFound. It issues a new server certificate when the old one has fewer than 30 days
// left or does not name PublicURL's host, or is damaged; what can be made again of the rest is, and Mended tells.
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
	if err := k.keepHeadPublic(); err != nil {
		return nil, err
	}
	if err := k.openOperator(o.Operator); err != nil {
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
	if err := ca.CheckSignatureFrom(ca); err != nil { // its key is as it was; what it says of itself may not be
		return damaged(filepath.Join(k.dir, fileCACert), "its own signature does not hold: "+err.Error())
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
	key, kerr := readKeyFile(filepath.Join(k.dir, fileServerKey))
	for _, e := range []error{err, kerr} {
		if domain.KindOf(e) == domain.KindDenied {
			return e // others may know the key: its owner must decide
		}
	}
	if err == nil {
		err = kerr
	}
	if err == nil {
		k.server, err = tls.X509KeyPair(cert, key)
	}
	switch {
	case err != nil:
		// A crash between the two files of a renewal leaves a pair that does not fit; nothing is lost by a new one.
		k.renewed = "certificate and key did not fit"
	case k.server.Leaf.CheckSignatureFrom(ca) != nil:
		k.renewed = "it was issued by another CA"
	case len(k.server.Certificate) != 2 || !bytes.Equal(k.server.Certificate[1], ca.Raw):
		k.renewed = "the chain did not end with the CA" // those who join would not find the key that their token names
	default:
		k.renewed = stale(k.server.Leaf, names, o.Now)
	}
	if k.renewed == "" {
		return nil
	}
	if cert, key, err = newServer(caCert, caKey, names, o.Now); err != nil {
		return err
	}
	if err := k.replace(fileServerKey, key); err != nil {
		return err
	}
	if err := k.replace(fileServerCert, cert); err != nil {
		return err
	}
	if k.server, err = tls.X509KeyPair(cert, key); err != nil {
		return fmt.Errorf("read the certificate just issued: %w", err)
	}
	return nil
}
