package fleet

import (
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

// maxTokens bounds the list: the oldest go first.
const maxTokens = 1024

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

func (t *tokens) apply(e event.Envelope) {
	switch d := e.Data.(type) {
	case *pool.TokenCreated:
		t.byID[d.Token] = &Token{ID: d.Token, Uses: d.Uses, Expires: time.UnixMicro(d.Expires).UTC(), Created: e.Time}
		t.order = append(t.order, d.Token)
		if len(t.order) > maxTokens {
			delete(t.byID, t.order[0])
			t.order = t.order[1:]
		}
	case *pool.TokenUsed:
		if k, ok := t.byID[d.Token]; ok {
			k.Uses--
		}
	case *pool.TokenRevoked:
		if k, ok := t.byID[d.Token]; ok {
			k.Revoked = true
		}
	}
}
