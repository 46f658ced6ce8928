package pool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// Evolve applies a fact. s is nil before the first one. It cannot fail; a fact that no version of this package knows is a
// broken promise of the registry.
func Evolve(s *State, e event.Envelope) *State {
	if s == nil {
		s = &State{Tokens: map[domain.TokenID]Token{}, Observers: map[domain.ObserverID]Observer{}, Keys: map[domain.KeyID]Key{}, Models: map[domain.ModelID]Model{}}
	}
	s.Seq = e.Seq
	switch d := e.Data.(type) {
	case *Founded:
		s.Founded = time.UnixMicro(d.At).UTC()
	case *TokenCreated:
		s.forget(e.Time)
		s.Tokens[d.Token] = Token{ID: d.Token, Hash: d.Hash, Expires: time.UnixMicro(d.Expires).UTC(), Uses: d.Uses}
	case *TokenUsed:
		t := s.Tokens[d.Token]
		t.Uses = d.Left
		t.Machines = append(t.Machines, d.Machine)
		s.Tokens[d.Token] = t
	case *TokenRevoked:
		t := s.Tokens[d.Token]
		t.Revoked = true
		s.Tokens[d.Token] = t
	case *ObserverCreated:
		s.addObserver(e, d)
	case *ObserverRevoked:
		s.revokeObserver(d)
	case *KeyCreated:
		s.addKey(e, d)
	case *KeyRevoked:
		s.revokeKey(d)
	case *ModelDeployed:
		s.deploy(d)
	case *ModelRolledBack:
		s.rollBack(d)
	case *ModelRetired:
		s.retire(d)
	case *InferenceCounted: // usage, which no decision depends on
	default:
		panic(fmt.Sprintf("broken promise: pool.Evolve knows every fact of a pool, not %T", e.Data))
	}
	return s
}

// forget drops the tokens that have expired at now, and of the used up and revoked ones all but the maxDead that expire
// last. It keeps the state bounded; the log has them all.
func (s *State) forget(now time.Time) {
	var dead []Token
	for id, t := range s.Tokens {
		switch {
		case !now.Before(t.Expires):
			delete(s.Tokens, id)
		case !t.Live(now):
			dead = append(dead, t)
		}
	}
	if len(dead) <= maxDead {
		return
	}
	slices.SortFunc(dead, func(a, b Token) int {
		return cmp.Or(a.Expires.Compare(b.Expires), strings.Compare(string(a.ID), string(b.ID)))
	})
	for _, t := range dead[:len(dead)-maxDead] {
		delete(s.Tokens, t.ID)
	}
}
