package pool

import (
	"crypto/subtle"
	"fmt"
	"slices"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// newToken is what a refused person does next.
const newToken = "ask the pool's owner for a new one: tensorturn token create"

// Decide says what c makes true of the pool, nothing when it already is, or why it may not be. s is nil before Found.
func Decide(s *State, c Command) ([]event.Data, error) {
	if c, ok := c.(Found); ok {
		if s != nil {
			return nil, nil
		}
		return []event.Data{&Founded{At: c.At.UnixMicro()}}, nil
	}
	if s == nil {
		return nil, domain.Conflict("decide pool", "the pool is not founded", "start the hub once: tensorturn hub start")
	}
	switch c := c.(type) {
	case CreateToken:
		return decideCreate(s, c)
	case UseToken:
		return decideUse(s, c)
	case RevokeToken:
		return decideRevoke(s, c)
	case CreateObserver:
		return decideCreateObserver(s, c)
	case RevokeObserver:
		return decideRevokeObserver(s, c)
	case CreateKey:
		return decideCreateKey(s, c)
	case RevokeKey:
		return decideRevokeKey(s, c)
	case DeployModel:
		return decideDeploy(s, c)
	case RollBackModel:
		return decideRollBack(s, c)
	case RetireModel:
		return decideRetire(s, c)
	case CountInference:
		return decideCount(c)
	}
	panic(fmt.Sprintf("broken promise: pool.Decide knows every command, not %T", c))
}

func decideCreate(s *State, c CreateToken) ([]event.Data, error) {
	op := "create token " + domain.Clip(string(c.ID), domain.MaxIDLength)
	if c.Uses == 0 {
		c.Uses = 1
	}
	if t, ok := s.Tokens[c.ID]; ok {
		if t.Hash == c.Hash {
			return nil, nil
		}
		return nil, domain.Conflict(op, "a token of this id exists", "try again: the id is drawn anew")
	}
	if !domain.ValidID(string(c.ID)) {
		return nil, domain.Invalid(op, "this is not an id", "use lower-case letters, digits, '-' or '_'")
	}
	if _, err := domain.ParseDigest(string(c.Hash)); err != nil {
		return nil, domain.Invalid(op, "the secret's hash is not a SHA-256", "give 64 lower-case hex digits")
	}
	if c.Uses < 1 || c.Uses > MaxTokenUses {
		return nil, domain.Invalid(op, fmt.Sprintf("%d uses; a token has 1 to %d", c.Uses, MaxTokenUses), "choose --uses in this range")
	}
	if err := checkLife(op, c); err != nil {
		return nil, err
	}
	if n := s.live(c.Now); n >= MaxTokens {
		return nil, domain.Conflict(op, fmt.Sprintf("the pool has %d live tokens, the limit", n), "revoke some: tensorturn token list, tensorturn token revoke")
	}
	return []event.Data{&TokenCreated{Token: c.ID, Hash: c.Hash, Expires: c.Expires.UnixMicro(), Uses: c.Uses}}, nil
}

func checkLife(op string, c CreateToken) error {
	if c.Now.IsZero() {
		return nil
	}
	if life := c.Expires.Sub(c.Now); life <= 0 || life > MaxTokenLife {
		return domain.Invalid(op, fmt.Sprintf("it would expire in %s; a token lives up to %s", life.Round(time.Second), MaxTokenLife),
			"choose --expires in this range; 24h is the default")
	}
	return nil
}

// live counts the tokens that would admit a machine.
func (s *State) live(now time.Time) int {
	n := 0
	for _, t := range s.Tokens {
		if t.Live(now) {
			n++
		}
	}
	return n
}

func decideUse(s *State, c UseToken) ([]event.Data, error) {
	op := "join with token " + domain.Clip(string(c.ID), domain.MaxIDLength)
	t, ok := s.Tokens[c.ID]
	// An unknown token and a wrong secret give the same answer, so that the answer tells a guesser nothing.
	if same := subtle.ConstantTimeCompare([]byte(t.Hash), []byte(c.Hash)) == 1; !ok || !same {
		return nil, domain.Denied(op, "the token is not known to this pool, or has expired", "check that it was copied whole and is for this hub, or "+newToken)
	}
	switch {
	case t.Revoked:
		return nil, domain.Denied(op, "the token was revoked", newToken)
	case slices.Contains(t.Machines, c.Machine):
		return nil, nil
	case t.Uses < 1:
		return nil, domain.Denied(op, "the token is used up: "+machines(len(t.Machines))+" joined with it", newToken)
	case !c.Now.Before(t.Expires):
		return nil, domain.Denied(op, "the token expired at "+day(t.Expires.UnixMicro()), newToken)
	}
	return []event.Data{&TokenUsed{Token: c.ID, Machine: c.Machine, Left: t.Uses - 1}}, nil
}

func decideRevoke(s *State, c RevokeToken) ([]event.Data, error) {
	t, ok := s.Tokens[c.ID]
	if !ok {
		return nil, domain.NotFound("revoke token "+domain.Clip(string(c.ID), domain.MaxIDLength), "the pool has no such token, or it has expired", "see tensorturn token list")
	}
	if t.Revoked {
		return nil, nil
	}
	return []event.Data{&TokenRevoked{Token: c.ID}}, nil
}
