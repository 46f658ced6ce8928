package pool

import (
	"fmt"
	"time"

	"tensorturn/domain"
)

// The names of the facts. They are for ever.
const (
	NameFounded      = "pool.founded"
	NameTokenCreated = "token.created"
	NameTokenUsed    = "token.used"
	NameTokenRevoked = "token.revoked"
)

// The facts of a pool. Times are unix microseconds on the hub's clock.
type (
	// Founded begins the pool.
	Founded struct {
		At int64 `msgpack:"at"`
	}
	// TokenCreated adds a join token.
	TokenCreated struct {
		Token   domain.TokenID `msgpack:"token"`
		Hash    domain.Digest  `msgpack:"hash"` // SHA-256 of the secret
		Expires int64          `msgpack:"expires"`
		Uses    int            `msgpack:"uses"`
	}
	// TokenUsed admits a machine.
	TokenUsed struct {
		Token   domain.TokenID   `msgpack:"token"`
		Machine domain.MachineID `msgpack:"machine"`
		Left    int              `msgpack:"left"` // uses that remain
	}
	// TokenRevoked closes a token before its time.
	TokenRevoked struct {
		Token domain.TokenID `msgpack:"token"`
	}
)

func (Founded) EventName() string      { return NameFounded }
func (TokenCreated) EventName() string { return NameTokenCreated }
func (TokenUsed) EventName() string    { return NameTokenUsed }
func (TokenRevoked) EventName() string { return NameTokenRevoked }

// Line renders the fact.
func (Founded) Line() string { return "pool founded" }

// Line renders the fact.
func (e TokenCreated) Line() string {
	return fmt.Sprintf("token %s created for %s until %s", e.Token, machines(e.Uses), day(e.Expires))
}

// Line renders the fact.
func (e TokenUsed) Line() string {
	return fmt.Sprintf("token %s admitted %s, %d left", e.Token, e.Machine, e.Left)
}

// Line renders the fact.
func (e TokenRevoked) Line() string { return fmt.Sprintf("token %s revoked", e.Token) }

func machines(n int) string {
	if n == 1 {
		return "1 machine"
	}
	return fmt.Sprintf("%d machines", n)
}

func day(us int64) string { return time.UnixMicro(us).UTC().Format("2006-01-02 15:04 MST") }
