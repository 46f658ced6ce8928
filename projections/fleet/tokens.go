package fleet

import (
	"slices"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/pool"
)

// Token is a join token as people see it: never its secret.
type Token struct {
	ID      domain.TokenID `json:"id"`
	Uses    int            `json:"uses_left"`
	Expires time.Time      `json:"expires"`
	Created time.Time      `json:"created"`
	Revoked bool           `json:"revoked"`
}

// Live reports whether the token admits a machine at the time now.
func (t Token) Live(now time.Time) bool { return !t.Revoked && t.Uses > 0 && now.Before(t.Expires) }

// maxTokens bounds the list. The pool has at most pool.MaxTokens live ones, so that a dead one can always go.
const maxTokens = pool.MaxTokens + 256

type tokens struct {
	byID  map[domain.TokenID]*Token
	order []domain.TokenID
}

func newTokens() tokens { return tokens{byID: map[domain.TokenID]*Token{}} }

// Tokens copies the tokens, oldest first.
func (v *View) Tokens() []Token {
	out := make([]Token, 0, len(v.tokens.order))
	for _, id := range v.tokens.order {
		out = append(out, *v.tokens.byID[id])
	}
	return out
}

// Token gives one token. What was dropped from the list is not live any more.
func (v *View) Token(id domain.TokenID) (Token, bool) {
	if t, ok := v.tokens.byID[id]; ok {
		return *t, true
	}
	return Token{}, false
}

func (t *tokens) apply(e event.Envelope) {
	switch d := e.Data.(type) {
	case *pool.TokenCreated:
		t.byID[d.Token] = &Token{ID: d.Token, Uses: d.Uses, Expires: time.UnixMicro(d.Expires).UTC(), Created: e.Time}
		t.order = append(t.order, d.Token)
		t.bound(e.Time)
	case *pool.TokenUsed:
		if k, ok := t.byID[d.Token]; ok {
			k.Uses = d.Left
		}
	case *pool.TokenRevoked:
		if k, ok := t.byID[d.Token]; ok {
			k.Revoked = true
		}
	}
}

// bound drops the oldest token that is dead at the time now, when there are too many.
func (t *tokens) bound(now time.Time) {
	if len(t.order) <= maxTokens {
		return
	}
	i := max(slices.IndexFunc(t.order, func(id domain.TokenID) bool { return !t.byID[id].Live(now) }), 0)
	delete(t.byID, t.order[i])
	t.order = slices.Delete(t.order, i, i+1)
}
