package pool

import (
	"time"

	"tensorturn/domain"
)

// ID is the id of the one pool aggregate of a hub.
const ID = "pool"

// Limits of a pool.
const (
	MaxTokens    = 1024                // live tokens; an owner joins machines one by one or with a token of many uses
	MaxTokenUses = domain.MaxMachines  // more uses than machines fit the pool make no sense
	MaxTokenLife = 30 * 24 * time.Hour // a forgotten token must not stay a door
	maxDead      = 1024                // used up or revoked tokens remembered until they expire, for a clear refusal
)

// State is everything decisions about the pool need. Evolve owns it: it is changed in place and must not be shared.
type State struct {
	Seq     uint64
	Founded time.Time
	Tokens  map[domain.TokenID]Token // not expired when the last pool event was written
	// Observers holds the live ones and the newest maxDead of those that ended.
	Observers map[domain.ObserverID]Observer
	// Keys holds the live ones and the newest maxDead of those that ended.
	Keys map[domain.KeyID]Key
	// Models holds every deployed name, retired ones too: their versions go on counting.
	Models map[domain.ModelID]Model
}

// Token is a join token as the hub knows it.
type Token struct {
	ID       domain.TokenID
	Hash     domain.Digest // SHA-256 of the secret
	Expires  time.Time
	Uses     int // left
	Revoked  bool
	Machines []domain.MachineID // that joined with it, in order
}

// Live reports whether the token admits a machine at the time now.
func (t Token) Live(now time.Time) bool { return !t.Revoked && t.Uses > 0 && now.Before(t.Expires) }
