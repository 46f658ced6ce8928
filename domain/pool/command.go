package pool

import (
	"time"

	"tensorturn/domain"
)

// Command is a wish to change the pool.
type Command interface{ isCommand() }

// The commands. Now is the hub's clock.
type (
	// Found begins the pool.
	Found struct{ At time.Time }
	// CreateToken adds a join token; its id and secret were drawn at the edge.
	CreateToken struct {
		ID      domain.TokenID
		Hash    domain.Digest // SHA-256 of the secret
		Expires time.Time
		Uses    int       // machines it may admit, 0 means 1
		Now     time.Time // zero: whether Expires lies ahead and near enough was checked at the edge
	}
	// UseToken admits a machine. The same machine may repeat it: its first enrolment may have been answered into a
	// broken link.
	UseToken struct {
		ID      domain.TokenID
		Hash    domain.Digest
		Machine domain.MachineID
		Now     time.Time
	}
	RevokeToken struct{ ID domain.TokenID }
)

func (Found) isCommand()       {}
func (CreateToken) isCommand() {}
func (UseToken) isCommand()    {}
func (RevokeToken) isCommand() {}
