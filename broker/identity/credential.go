package identity

import (
	"fmt"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"tensorturn/domain"
)

// CredentialLife is how long an agent's credential works; it is renewed at half of it.
const CredentialLife = 24 * time.Hour

// maxCredentialLife bounds exported credentials for stock servers, which nobody renews.
const maxCredentialLife = 366 * 24 * time.Hour

// Role is one of the hub's own accounts.
type Role string

// The hub's own accounts.
const (
	RoleSystem  Role = "SYS"
	RoleHub     Role = "HUB"
	RoleService Role = "SVC"
)

// InProcess makes a user of one of the hub's own accounts for this process only: its key is drawn here and never
// stored, and the server takes it from in-process connections alone.
func (k *Keys) InProcess(r Role) (token string, user nkeys.KeyPair, err error) {
	acc := map[Role]nkeys.KeyPair{RoleSystem: k.sys, RoleHub: k.hub, RoleService: k.svc}[r]
	if acc == nil {
		return "", nil, domain.Invalid("make user", fmt.Sprintf("no account %q", r), "")
	}
	if user, err = nkeys.CreateUser(); err != nil {
		return "", nil, fmt.Errorf("make user of %s: %w", r, err)
	}
	c := jwt.NewUserClaims(public(user))
	c.Name = "hub"
	c.AllowedConnectionTypes = jwt.StringList{jwt.ConnectionTypeInProcess}
	if token, err = c.Encode(acc); err != nil {
		return "", nil, fmt.Errorf("encode user of %s: %w", r, err)
	}
	return token, user, nil
}

// PublicAccount is the public key of one of the hub's own accounts.
func (k *Keys) PublicAccount(r Role) string {
	switch r {
	case RoleSystem:
		return public(k.sys)
	case RoleHub:
		return public(k.hub)
	case RoleService:
		return public(k.svc)
	}
	return ""
}

// Credential issues a user JWT for the machine's nkey, good for life from now over WebSocket only: as a leafnode (the
// agent, a stock server) or as a plain client.
func (m Machine) Credential(nkey string, life time.Duration, now time.Time) (string, error) {
	op := "issue credential for " + string(m.ID)
	if !nkeys.IsValidPublicUserKey(nkey) {
		return "", domain.Invalid(op, "the machine's key is not a public user nkey", "join again")
	}
	if life <= 0 || life > maxCredentialLife {
		return "", domain.Invalid(op, fmt.Sprintf("a life of %s is not between 0 and %s", life, maxCredentialLife), "")
	}
	c := jwt.NewUserClaims(nkey)
	c.Name = string(m.ID)
	c.Expires = now.Add(life).Unix()
	c.AllowedConnectionTypes = jwt.StringList{jwt.ConnectionTypeLeafnodeWS, jwt.ConnectionTypeWebsocket}
	tok, err := c.Encode(m.account)
	if err != nil {
		return "", fmt.Errorf("%s: %w", op, err)
	}
	return tok, nil
}

// Validity is when a credential was issued and when it ends, both to the second.
type Validity struct{ Issued, Expires time.Time }

// ReadValidity reads a credential's times. It proves nothing: the server does.
func ReadValidity(credential string) (Validity, error) {
	c, err := jwt.DecodeUserClaims(credential)
	if err != nil {
		return Validity{}, domain.Invalid("read credential", err.Error(), "join the hub again")
	}
	return Validity{Issued: time.Unix(c.IssuedAt, 0), Expires: time.Unix(c.Expires, 0)}, nil
}

// HalfOver reports whether the credential should be renewed.
func (v Validity) HalfOver(now time.Time) bool {
	return !now.Before(v.Issued.Add(v.Expires.Sub(v.Issued) / 2))
}

// Over reports whether the credential has ended.
func (v Validity) Over(now time.Time) bool { return !now.Before(v.Expires) }
