package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"tensorturn/domain"
)

// PinnedTLS is for the first contact, when an agent knows only the pin of its join token: the handshake fails, before a
// byte of ours is sent, unless the hub presents a certificate that chains to the pinned CA and names host.
func PinnedTLS(pin Pin, host string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: host,
		InsecureSkipVerify: true, // VerifyConnection below does all of it, with the pinned CA as the only root
		VerifyConnection: func(cs tls.ConnectionState) error {
			return verifyPinned(cs.PeerCertificates, pin, host)
		},
	}
}

// TrustTLS is for every later contact: only the CA kept from enrolment is trusted.
func TrustTLS(caPEM []byte) (*tls.Config, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(caPEM) {
		return nil, domain.Invalid("read the hub's CA", "it holds no certificate", "join the hub again")
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool}, nil
}

func verifyPinned(peers []*x509.Certificate, pin Pin, host string) error {
	if len(peers) == 0 {
		return errors.New("the hub presents no certificate")
	}
	roots, inter := x509.NewCertPool(), x509.NewCertPool()
	found := false
	for i, c := range peers {
		switch {
		case PinOf(c).Equal(pin):
			roots.AddCert(c)
			found = true
		case i > 0:
			inter.AddCert(c)
		}
	}
	if !found {
		return domain.Denied("check the hub", "its certificate does not come from the pool this token was made for",
			"check the address; somebody may sit in between, or the token belongs to another pool")
	}
	if _, err := peers[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: inter, DNSName: host}); err != nil {
		return domain.Denied("check the hub", fmt.Sprintf("its certificate is not good for %s: %v", host, err),
			"start the hub with a --public-url that names this host, or check this machine's clock")
	}
	return nil
}
