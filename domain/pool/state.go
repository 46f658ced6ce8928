package pool

import (
	"cmp"
	"slices"
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

// forgetDead drops the oldest dead ones beyond maxDead, by the sequence of their creation. It keeps the state bounded; the
// log has them all.
func forgetDead[K comparable, V any](all map[K]V, judge func(V) (live bool, seq uint64)) {
	type dead struct {
		key K
		seq uint64
	}
	var gone []dead
	for k, v := range all {
		if live, seq := judge(v); !live {
			gone = append(gone, dead{k, seq})
		}
	}
	slices.SortFunc(gone, func(a, b dead) int { return cmp.Compare(a.seq, b.seq) })
	for _, d := range gone[:max(0, len(gone)-maxDead)] {
		delete(all, d.key)
	}
}
