package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"slices"
	"time"

	"tensorturn/domain"
)

// Life of certificates.
const (
	caLife     = 10 * 365 * 24 * time.Hour // the pin in agents' files lives as long
	serverLife = 365 * 24 * time.Hour      // clients refuse much longer ones
	renewAhead = 30 * 24 * time.Hour       // a hub restarted once a month never serves an expired one
	clockSlack = time.Hour                 // notBefore, for machines whose clocks run behind
)

// newCA makes the pool's certificate authority. ECDSA P-256 rather than Ed25519: browsers and older TLS stacks read it.
func newCA(now time.Time) (cert, key []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make CA key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "tensorturn pool CA"},
		NotBefore:    now.Add(-clockSlack), NotAfter: now.Add(caLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, k.Public(), k)
	if err != nil {
		return nil, nil, fmt.Errorf("make CA certificate: %w", err)
	}
	key, err = encodeKey(k)
	return encodeCert(der), key, err
}

// newServer issues a server certificate for names (host names and addresses). The returned chain ends with the CA: an
// agent that knows only the CA's pin finds the CA there.
func newServer(caCert, caKey []byte, names []string, now time.Time) (chain, key []byte, err error) {
	ca, signer, err := parsePair(caCert, caKey)
	if err != nil {
		return nil, nil, err
	}
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make server key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "tensorturn hub"},
		NotBefore:    now.Add(-clockSlack), NotAfter: now.Add(serverLife),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca, k.Public(), signer)
	if err != nil {
		return nil, nil, fmt.Errorf("issue server certificate: %w", err)
	}
	key, err = encodeKey(k)
	return append(encodeCert(der), caCert...), key, err
}

// serverNames lists what the hub is called, without doubles, in a fixed order.
func serverNames(publicURL, hostname string) ([]string, error) {
	names := []string{"localhost", "127.0.0.1", "::1"}
	if publicURL != "" {
		u, err := url.Parse(publicURL)
		if err != nil || u.Scheme != "https" || u.Hostname() == "" {
			return nil, domain.Invalid("read public URL", fmt.Sprintf("%q is not an https URL with a host", domain.Clip(publicURL, 200)),
				"give it as https://hub.example.org:7443")
		}
		names = append(names, u.Hostname())
	}
	if hostname != "" {
		names = append(names, hostname)
	}
	var out []string
	for _, n := range names {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out, nil
}

// stale says why a server certificate must be issued anew, "" when it need not.
func stale(leaf *x509.Certificate, names []string, now time.Time) string {
	if now.Add(renewAhead).After(leaf.NotAfter) {
		return "expires on " + leaf.NotAfter.UTC().Format(time.DateOnly)
	}
	for _, n := range names {
		if leaf.VerifyHostname(n) != nil {
			return "does not name " + n
		}
	}
	return ""
}

// ownersChain reads a certificate the owner brought, checks it as far as one can offline, and returns its chain.
func ownersChain(certPEM, keyPEM []byte, now time.Time) (tls.Certificate, error) {
	const op, next = "read the owner's certificate", "give --tls-cert (leaf first, then intermediates) and its --tls-key"
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return pair, domain.Invalid(op, err.Error(), next)
	}
	if now.After(pair.Leaf.NotAfter) {
		return pair, domain.Invalid(op, "it expired on "+pair.Leaf.NotAfter.UTC().Format(time.DateOnly), next)
	}
	return pair, nil
}

func parsePair(certPEM, keyPEM []byte) (*x509.Certificate, crypto.Signer, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, nil, err
	}
	s, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, errors.New("the key cannot sign")
	}
	return pair.Leaf, s, nil
}

func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("draw serial: %w", err)
	}
	return n.Add(n, big.NewInt(1)), nil
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeKey(k any) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// lastCert is the certificate nearest to the root in a PEM chain.
func lastCert(chain []byte) (*x509.Certificate, error) {
	var last []byte
	for {
		var b *pem.Block
		b, chain = pem.Decode(chain)
		if b == nil {
			break
		}
		if b.Type == "CERTIFICATE" {
			last = bytes.Clone(b.Bytes)
		}
	}
	return x509.ParseCertificate(last)
}
