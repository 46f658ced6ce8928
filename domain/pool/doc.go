// Package pool is the pool of one owner as an event-sourced aggregate: its founding and its join tokens. Secrets never
// enter: a token is an accessor id and the SHA-256 of its secret.
//
// Who may cause what: first start Found; operator CreateToken, RevokeToken; enrolment UseToken (in one batch with
// machine.Enrol, so that a token is used if and only if a machine came of it).
package pool

import (
	"time"

	"tensorturn/domain"
)

// State is everything decisions about the pool need.
type State struct {
	Seq     uint64
	Founded time.Time
	Tokens  map[domain.TokenID]Token
}

// Token is a join token as the hub knows it.
type Token struct {
	ID      domain.TokenID
	Hash    domain.Digest // SHA-256 of the secret
	Expires time.Time
	Uses    int // left
	Revoked bool
}
