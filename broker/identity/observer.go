package identity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"tensorturn/broker/wire"
	"tensorturn/domain"
)

// Limits of one observer's account. They bound what a rogue holder of a valid credential costs the hub.
const (
	ObserverConns = 8  // copies of one system that share the work
	ObserverSubs  = 64 // per connection: a client needs one inbox for each consumer it opens
)

// dirObservers is made with the first observer: directories of earlier hubs have none.
const dirObservers = "observers"

// Observer is one observer as the hub's key directory knows it: its NATS account.
type Observer struct {
	ID      domain.ObserverID
	Account string // public key: the identity in subjects, and the name of its consumer
	account nkeys.KeyPair
}

// Observer returns the observer's account, made and stored on the first call for its id. Calling it again is safe.
func (k *Keys) Observer(id domain.ObserverID) (Observer, error) {
	if _, err := domain.ParseID[domain.ObserverID]("observer", string(id)); err != nil {
		return Observer{}, err
	}
	dir := filepath.Join(k.dir, dirObservers)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Observer{}, domain.Unavailable("make observer", "the key directory cannot be written", "free disk space or fix its owner", err)
	}
	path := filepath.Join(dir, string(id)+".seed")
	kp, err := readAccountSeed(path)
	if missing(err) {
		var seed []byte
		if seed, err = newSeed(nkeys.PrefixByteAccount); err != nil {
			return Observer{}, err
		}
		if err = createSecret(path, seed); err != nil {
			return Observer{}, err
		}
		kp, err = readAccountSeed(path) // the file decides, should two callers have raced
	}
	if err != nil {
		return Observer{}, err
	}
	return Observer{ID: id, Account: public(kp), account: kp}, nil
}

// KnownObserver returns the account of an observer that was made earlier; a missing seed is damage.
func (k *Keys) KnownObserver(id domain.ObserverID) (Observer, error) {
	path := filepath.Join(k.dir, dirObservers, string(id)+".seed")
	kp, err := readAccountSeed(path)
	if missing(err) {
		err = damaged(path, "the account of observer "+string(id)+" is missing")
	}
	if own, ok := errors.AsType[*domain.Error](err); ok && own.Kind == domain.KindIntegrity {
		own.Next = "restore this file from a backup of the hub's folder; else: tensorturn credential revoke " + string(id) + ", and make another credential"
	}
	if err != nil {
		return Observer{}, err
	}
	return Observer{ID: id, Account: public(kp), account: kp}, nil
}

func readAccountSeed(path string) (nkeys.KeyPair, error) {
	if _, err := readSecret(path); missing(err) {
		return nil, err
	}
	return readSeed(path, nkeys.PrefixByteAccount)
}

// exportFeed opens the three services of the feed to accounts that import them under their own name.
func exportFeed(c *jwt.AccountClaims) {
	services := wire.FeedServices("")
	c.Limits.Exports, c.Limits.WildcardExports = int64(len(services)), true
	for _, s := range services {
		e := &jwt.Export{Name: s.Name, Subject: jwt.Subject(s.Export), Type: jwt.Service, AccountTokenPosition: s.Token}
		if s.Streamed {
			e.ResponseType = jwt.ResponseTypeStream // with one answer a request, 49 of 50 messages would be spent unseen
		}
		c.Exports.Add(e)
	}
}

// ObserverAccount is the JWT of one observer's account: it imports the feed's three services and holds nothing else. It
// admits no leafnode: a raw one could aim a reply at somebody's acknowledgement, which a client cannot.
func (k *Keys) ObserverAccount(o Observer) (string, error) {
	hub := public(k.hub)
	return k.encodeAccount(string(o.ID), o.account, func(c *jwt.AccountClaims) {
		services := wire.FeedServices(o.Account)
		for _, s := range services {
			i := &jwt.Import{Name: s.Name, Account: hub, Type: jwt.Service, Subject: jwt.Subject(s.Subject)}
			if s.Local != s.Subject {
				i.LocalSubject = jwt.RenamingSubject(s.Local)
			}
			c.Imports.Add(i)
		}
		c.Limits.Imports = int64(len(services))
		c.Limits.Conn, c.Limits.Subs = ObserverConns, ObserverSubs
		// No payload limit below the server's own: it sends requests and acknowledgements alone, but a client takes eight times
		// the limit for the largest frame it may be sent, and hangs up on a burst of events (nats.go 1.55.0: "websocket frame
		// too large").
	})
}

// RevokedObserver is the JWT that ends an observer for ever: no import, no connection.
func (k *Keys) RevokedObserver(o Observer, now time.Time) (string, error) {
	return k.encodeAccount(string(o.ID), o.account, func(c *jwt.AccountClaims) {
		c.RevokeAt(jwt.All, now)
	})
}

// Credential issues a user JWT for the observer's nkey, good until expires, over WebSocket only. Its permissions repeat
// what the imports allow: a second line of defence.
func (o Observer) Credential(nkey string, expires, now time.Time) (string, error) {
	op := "issue credential for observer " + string(o.ID)
	if !nkeys.IsValidPublicUserKey(nkey) {
		return "", domain.Invalid(op, "the key is not a public user nkey", "")
	}
	if life := expires.Sub(now); life <= 0 || life > maxCredentialLife {
		return "", domain.Invalid(op, fmt.Sprintf("a life of %s is not between 0 and %s", life, maxCredentialLife), "")
	}
	c := jwt.NewUserClaims(nkey)
	c.Name = string(o.ID)
	c.Expires = expires.Unix()
	c.AllowedConnectionTypes = jwt.StringList{jwt.ConnectionTypeWebsocket}
	for _, s := range wire.FeedServices(o.Account) {
		c.Permissions.Pub.Allow.Add(s.Local)
	}
	c.Permissions.Sub.Allow.Add("_INBOX.>")
	tok, err := c.Encode(o.account)
	if err != nil {
		return "", fmt.Errorf("%s: %w", op, err)
	}
	return tok, nil
}

// NewUserSeed draws the key of a system that will connect: its public part goes to the hub, the seed stays where it is drawn.
func NewUserSeed() (seed []byte, nkey string, err error) {
	kp, err := nkeys.CreateUser()
	if err != nil {
		return nil, "", fmt.Errorf("make user key: %w", err)
	}
	if seed, err = kp.Seed(); err != nil {
		return nil, "", fmt.Errorf("make user key: %w", err)
	}
	return seed, public(kp), nil
}

// FormatCreds gives the .creds file that every NATS client reads: credential and seed. It is a secret.
func FormatCreds(credential string, seed []byte) ([]byte, error) {
	b, err := jwt.FormatUserConfig(credential, seed)
	if err != nil {
		return nil, domain.Invalid("write credential", err.Error(), "")
	}
	return b, nil
}
