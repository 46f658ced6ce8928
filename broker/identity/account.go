package identity

import (
	"fmt"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"tensorturn/broker/wire"
	"tensorturn/domain"
)

// Limits of one machine's account. They bound what a rogue holder of a valid credential costs the hub.
const (
	MachineConns = 4   // plain clients: an owner's look with the nats tool beside the agent
	MachineLeafs = 2   // one, plus the overlap while a lost link is still being noticed
	MachineSubs  = 256 // per connection; an agent needs three, a stock leaf one for each local subject
)

// Store bounds the hub account's JetStream, in bytes.
type Store struct{ Disk, Memory int64 }

// SystemAccount is the JWT of SYS.
func (k *Keys) SystemAccount() (string, error) {
	return k.encodeAccount("SYS", k.sys, func(*jwt.AccountClaims) {})
}

// HubAccount is the JWT of HUB, the only account with JetStream. Nobody outside the process has a user in it; observers'
// accounts import three services of it, each bound to the importer's own consumer.
func (k *Keys) HubAccount(s Store) (string, error) {
	return k.encodeAccount("HUB", k.hub, func(c *jwt.AccountClaims) {
		c.Limits.JetStreamLimits = jwt.JetStreamLimits{
			DiskStorage: s.Disk, MemoryStorage: s.Memory,
			Streams: jwt.NoLimit, Consumer: jwt.NoLimit, MaxAckPending: jwt.NoLimit,
		}
		exportFeed(c)
	})
}

// ServiceAccount is the JWT of SVC, where the hub answers machines. It has no JetStream, so a reply that an attacker
// aims at somebody's acknowledgement ends there.
func (k *Keys) ServiceAccount() (string, error) {
	return k.encodeAccount("SVC", k.svc, func(c *jwt.AccountClaims) {
		c.Limits.Exports, c.Limits.WildcardExports = 4, true
		c.Exports.Add(
			&jwt.Export{Name: "sync", Subject: wire.SyncSubjects, Type: jwt.Service, AccountTokenPosition: wire.AccountToken},
			&jwt.Export{Name: "wake", Subject: wire.WakeSubjects, Type: jwt.Stream, AccountTokenPosition: wire.AccountToken},
			&jwt.Export{Name: "ask", Subject: wire.AskSubjects, Type: jwt.Stream, AccountTokenPosition: wire.AccountToken},
			&jwt.Export{Name: "answer", Subject: wire.AnswerSubjects, Type: jwt.Service, AccountTokenPosition: wire.AccountToken},
		)
	})
}

// MachineAccount is the JWT of one machine's account: it imports the hub's four subjects, each bound to the account's own
// key, and holds nothing else. It exports nothing: the hub's questions reach it as hints do, through its own import.
func (k *Keys) MachineAccount(m Machine) (string, error) {
	svc := public(k.svc)
	return k.encodeAccount(string(m.ID), m.account, func(c *jwt.AccountClaims) {
		c.Imports.Add(
			&jwt.Import{Name: "sync", Account: svc, Type: jwt.Service,
				Subject: jwt.Subject(wire.SyncSubject(m.Account)), LocalSubject: wire.LocalSync},
			&jwt.Import{Name: "wake", Account: svc, Type: jwt.Stream,
				Subject: jwt.Subject(wire.WakeSubject(m.Account)), LocalSubject: wire.LocalWake},
			&jwt.Import{Name: "ask", Account: svc, Type: jwt.Stream,
				Subject: jwt.Subject(wire.AskSubject(m.Account)), LocalSubject: wire.LocalAsk},
			&jwt.Import{Name: "answer", Account: svc, Type: jwt.Service,
				Subject: jwt.Subject(wire.AnswerSubject(m.Account)), LocalSubject: wire.LocalAnswer},
		)
		c.Limits.Imports = 4
		c.Limits.Conn, c.Limits.LeafNodeConn = MachineConns, MachineLeafs
		c.Limits.Subs, c.Limits.Payload = MachineSubs, domain.MaxMessageBytes
	})
}

// RevokedAccount is the JWT that ends a machine for ever: every credential issued up to now is dead, no new connection
// is let in, and the imports are gone.
func (k *Keys) RevokedAccount(m Machine, now time.Time) (string, error) {
	return k.encodeAccount(string(m.ID), m.account, func(c *jwt.AccountClaims) {
		c.RevokeAt(jwt.All, now)
	})
}

// encodeAccount starts from an account that may hold nothing and lets fill open what it needs.
func (k *Keys) encodeAccount(name string, kp nkeys.KeyPair, fill func(*jwt.AccountClaims)) (string, error) {
	c := jwt.NewAccountClaims(public(kp))
	c.Name = name
	c.Limits.AccountLimits = jwt.AccountLimits{DisallowBearer: true}
	c.Limits.Subs, c.Limits.Payload, c.Limits.Data = jwt.NoLimit, jwt.NoLimit, jwt.NoLimit
	if kp == k.sys || kp == k.hub || kp == k.svc {
		c.Limits.Conn = jwt.NoLimit // in-process users only: see InProcess
	}
	fill(c)
	tok, err := c.Encode(k.operator)
	if err != nil {
		return "", fmt.Errorf("encode account %s: %w", name, err)
	}
	return tok, nil
}

// OperatorJWT is the self-signed root that nats-server trusts.
func (k *Keys) OperatorJWT() (string, error) {
	c := jwt.NewOperatorClaims(public(k.operator))
	c.Name, c.SystemAccount = "tensorturn", public(k.sys)
	tok, err := c.Encode(k.operator)
	if err != nil {
		return "", fmt.Errorf("encode operator: %w", err)
	}
	return tok, nil
}

// public cannot fail for a key pair made from a seed.
func public(kp nkeys.KeyPair) string {
	p, err := kp.PublicKey()
	domain.Assert(err == nil, "a seed has a public key")
	return p
}
